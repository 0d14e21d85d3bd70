"""Kinds of operators, whose schemas Kubernetes does not have: the part of each that the charts write, closed.

Rule: a field that is unlisted is wrong, so that a misspelt one does not wait for a cluster to be found. Names are
those of monitoring.coreos.com/v1, cert-manager.io/v1 and sparkoperator.k8s.io/v1beta2.
"""

from typing import Any, Final

import jsonschema

from scripts.helm.render import Document

Json = dict[str, Any]


def closed(*required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def list_of(items: Json, least: int = 1) -> Json:
    return {"type": "array", "items": items, "minItems": least}


def one_of(*values: str) -> Json:
    return {"enum": list(values)}


TEXT: Final[Json] = {"type": "string", "minLength": 1}
TEXTS: Final = list_of(TEXT)
FLAG: Final[Json] = {"type": "boolean"}
COUNT: Final[Json] = {"type": "integer", "minimum": 1}
PORT: Final[Json] = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$"}
DURATION: Final[Json] = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
QUANTITY: Final[Json] = {"type": "string", "pattern": "^[0-9]+[mgMG]$"}
MAP: Final[Json] = {"type": "object", "additionalProperties": {"type": "string"}}
ANY: Final[Json] = {"type": "object"}

RELABELING: Final = closed(
    sourceLabels=TEXTS, targetLabel=TEXT, regex=TEXT, replacement=TEXT, separator=TEXT,
    action=one_of("replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase"),
)  # fmt: skip
ENDPOINT: Final = closed(
    "port", port=PORT, path=TEXT, scheme=one_of("http", "https"), interval=DURATION, scrapeTimeout=DURATION,
    honorLabels=FLAG, relabelings=list_of(RELABELING), metricRelabelings=list_of(RELABELING),
    authorization=closed("credentials", type=TEXT, credentials=closed("name", "key", name=TEXT, key=TEXT)),
)  # fmt: skip
SELECTOR: Final = closed("matchLabels", matchLabels=MAP)
RULE: Final[Json] = {
    **closed("expr", alert=TEXT, record=TEXT, expr=TEXT, labels=MAP, annotations=MAP, **{"for": DURATION}),
    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
}
CERTIFICATE: Final = closed(
    "secretName", "issuerRef", "dnsNames", secretName=TEXT, duration=DURATION, renewBefore=DURATION, dnsNames=TEXTS,
    privateKey={
        **closed("algorithm", algorithm=one_of("ECDSA", "RSA", "Ed25519"), encoding=one_of("PKCS1", "PKCS8"),
                 size=COUNT, rotationPolicy=one_of("Always", "Never")),
        "if": {"properties": {"algorithm": {"const": "RSA"}}},
        "then": {"properties": {"size": {"enum": [2048, 4096, 8192]}}},
        "else": {"properties": {"size": {"enum": [256, 384, 521]}}},
    },
    usages=list_of(one_of("server auth", "client auth", "digital signature", "key encipherment")),
    issuerRef=closed("name", name=TEXT, kind=one_of("Issuer", "ClusterIssuer"), group=TEXT),
)  # fmt: skip
VOLUME: Final = closed("name", name=TEXT, secret=ANY, persistentVolumeClaim=ANY, emptyDir=ANY)
MOUNTS: Final = list_of(closed("name", "mountPath", name=TEXT, mountPath=TEXT, readOnly=FLAG))
SPARK_POD: Final[Json] = {
    "cores": COUNT, "memory": QUANTITY, "securityContext": ANY, "podSecurityContext": ANY, "volumeMounts": MOUNTS,
}  # fmt: skip
SPARK: Final = closed(
    "type", "mode", "sparkVersion", "image", "mainApplicationFile", "restartPolicy", "driver", "executor",
    type=one_of("Python"), pythonVersion=one_of("3"), mode=one_of("cluster"), sparkVersion=TEXT, image=TEXT,
    imagePullPolicy=one_of("Always", "IfNotPresent", "Never"), imagePullSecrets=TEXTS, mainApplicationFile=TEXT,
    arguments=TEXTS, sparkConf=MAP, volumes=list_of(VOLUME),
    restartPolicy=closed("type", type=one_of("Always", "OnFailure", "Never"), onFailureRetries=COUNT,
                         onFailureRetryInterval=COUNT),
    driver=closed(serviceAccount=TEXT, **SPARK_POD),
    executor=closed(instances=COUNT, **SPARK_POD),
)  # fmt: skip

SPECS: Final[dict[str, Json]] = {
    "monitoring.coreos.com/v1/PodMonitor": closed(
        "selector", "podMetricsEndpoints", jobLabel=TEXT, selector=SELECTOR, podMetricsEndpoints=list_of(ENDPOINT)),
    "monitoring.coreos.com/v1/ServiceMonitor": closed(
        "selector", "endpoints", jobLabel=TEXT, selector=SELECTOR, endpoints=list_of(ENDPOINT)),
    "monitoring.coreos.com/v1/PrometheusRule": closed(
        "groups", groups=list_of(closed("name", "rules", name=TEXT, interval=DURATION, rules=list_of(RULE)))),
    "cert-manager.io/v1/Certificate": CERTIFICATE,
    "sparkoperator.k8s.io/v1beta2/SparkApplication": SPARK,
    "sparkoperator.k8s.io/v1beta2/ScheduledSparkApplication": closed(
        "schedule", "template", schedule=TEXT, concurrencyPolicy=one_of("Allow", "Forbid", "Replace"),
        successfulRunHistoryLimit=COUNT, failedRunHistoryLimit=COUNT, template=SPARK),
}  # fmt: skip


def wrong_for_operator(document: Document) -> str:
    """Say what an operator would not take in a document, nothing if it is fine; raises KeyError for other kinds."""
    spec = SPECS[f"{document['apiVersion']}/{document['kind']}"]
    metadata = closed("name", "namespace", name=TEXT, namespace=TEXT, labels=MAP, annotations=MAP)
    whole = closed("apiVersion", "kind", "metadata", "spec", apiVersion=TEXT, kind=TEXT, metadata=metadata, spec=spec)
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(whole).iter_errors(document))
    return "" if error is None else f"{error.json_path}: {error.message}"
