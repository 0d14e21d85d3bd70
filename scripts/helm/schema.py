"""values.schema.json of a chart, out of its values.yaml: the types of defaults, and a few that a default cannot show.

Rule: a map with entries is closed, so that a misspelt value ends the render; an empty one (`{}`) is the operator's, and
so are the entries of lists.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from scripts.generated import json_records
from scripts.helm import keys

Json = dict[str, Any]

_QUANTITY: Final[Json] = {"type": ["string", "integer"], "pattern": "^$|^[0-9]+([kMG]|[KMG]i)?$", "minimum": 0}
_PORT: Final[Json] = {"type": "integer", "minimum": 1, "maximum": 65535}
_PORT_OR_NONE: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 65535}
_PERCENT_OR_NUMBER: Final[Json] = {"type": ["integer", "string"], "pattern": "^([0-9]+%)?$", "minimum": 0}
_NODE_PORT: Final[Json] = {"type": ["integer", "string"], "pattern": "^[0-9]*$"}
_DURATION: Final[Json] = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))*$"}
_CPU: Final[Json] = {"type": ["string", "number"]}

# The schema of values whose default does not show their type, by path.
_KNOWN: Final[dict[str, Json]] = {
    "affinity": {
        "type": "object",
        "properties": {name: {"type": "object"} for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")},
        "additionalProperties": False,
    },
    "networkPolicy.otlp.ports": {"type": "array", "items": _PORT},
    "updateStrategy": {
        "type": "object",
        "properties": {
            "type": {"enum": ["RollingUpdate", "Recreate"]},
            "rollingUpdate": {
                "type": "object",
                "properties": dict.fromkeys(("maxUnavailable", "maxSurge"), _PERCENT_OR_NUMBER),
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    },
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "restartPodsOnConfigMapChange": {"enum": ["static", "always", "never", True, False]},
    "replicaCount": {"type": "integer", "minimum": 0},
    "autoscaling.minReplicas": {"type": "integer", "minimum": 1},
    "autoscaling.maxReplicas": {"type": "integer", "minimum": 1},
    "autoscaling.cpu.averageValue": {"type": ["string", "number"], "pattern": "^[0-9]+([.][0-9]+)?m?$", "minimum": 0},
    "dnsPolicy": {"enum": ["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    "memory.limit": _QUANTITY,
    "memory.extra": _QUANTITY,
    "resources.requests.cpu": _CPU,
    "resources.limits.cpu": _CPU,
    "pdb.maxUnavailable": _PERCENT_OR_NUMBER,
    "pdb.minAvailable": _PERCENT_OR_NUMBER,
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "service.externalTrafficPolicy": {"enum": ["", "Local", "Cluster"]},
    "service.sessionAffinity": {"enum": ["", "ClientIP", "None"]},
    "certificate.privateKey.algorithm": {"enum": ["ECDSA", "RSA", "Ed25519"]},
    "auth.token.key": {"enum": ["secret", "public"]},
    "mode": {"enum": ["native", "plain"]},
    "eventLog.sizeLimit": _QUANTITY,
    "spill.sizeLimit": _QUANTITY,
}
_BY_PATH: Final[tuple[tuple[re.Pattern[str], Json], ...]] = (
    (re.compile(r"service\.nodePorts\.\w+"), _NODE_PORT),
    (re.compile(r"ports\.(containerPorts\.)?(http|https|pulsar|pulsarssl)|port|webPort"), _PORT),
    (re.compile("metricsPort"), _PORT_OR_NONE),
    (re.compile(r"\w+Monitor\.(interval|scrapeTimeout)|certificate\.(duration|renewBefore)"), _DURATION),
)
# Values in the form of Kubernetes' own API, which the chart passes on unchanged.
_PASSED_ON: Final = frozenset({
    "autoscaling.behavior", "dashboards.labels", "pipeline.compact.resources", "pipeline.ingest.resources",
    "pipeline.report.resources", "podSecurityContext", "resources", "securityContext",
})  # fmt: skip


def values_schema(title: str, defaults: Mapping[str, Any], dependencies: Iterable[str]) -> str:
    """Return the schema of a chart with these default values, including the values of its dependencies."""
    of_keys, definitions = keys.schema()
    properties = {name: of_keys if name == "configData" else _of(name, value) for name, value in defaults.items()}
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "description": "Written by scripts/generate_helm.py from values.yaml and the table of keys; do not edit here.",
        "type": "object",
        "properties": {**properties, **{name: {"type": "object"} for name in ("global", *dependencies)}},
        "additionalProperties": False,
        "$defs": definitions,
    }
    return json_records(document) + "\n"


def _of(path: str, value: object) -> Json:
    if path in _KNOWN:
        return _KNOWN[path]
    for pattern, known in _BY_PATH:
        if pattern.fullmatch(path):
            return known
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array"}
        case dict():
            return _of_map(path, value)
        case _:
            raise TypeError(f"values.yaml: {path}: got {value!r}, expected a default that has a type")


def _of_map(path: str, value: Mapping[str, object]) -> Json:
    if not value or path in _PASSED_ON:
        return {"type": "object"}
    properties = {name: _of(f"{path}.{name}", inner) for name, inner in value.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}
