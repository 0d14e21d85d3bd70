"""Kinds of operators, whose schemas Kubernetes does not have: the names of the fields that the charts write.

Rule: a name that is unlisted is wrong, so that a misspelt one does not wait for a cluster to be found. Names are those
of monitoring.coreos.com/v1 and cert-manager.io/v1.
"""

from collections.abc import Iterator
from typing import Any, Final

from scripts.helm.render import Document

# What stands in these is not the operator's.
FREE: Final = {"labels", "annotations", "matchLabels"}
MONITOR: Final = """
selector matchLabels jobLabel port path scheme interval scrapeTimeout honorLabels relabelings metricRelabelings
sourceLabels targetLabel regex replacement separator action authorization type credentials name key
"""
NAMES: Final = {
    "monitoring.coreos.com/v1/PodMonitor": f"{MONITOR} podMetricsEndpoints",
    "monitoring.coreos.com/v1/ServiceMonitor": f"{MONITOR} endpoints",
    "monitoring.coreos.com/v1/PrometheusRule": "groups name interval rules alert record expr for labels annotations",
    "cert-manager.io/v1/Certificate": """
secretName duration renewBefore dnsNames privateKey algorithm encoding size rotationPolicy usages issuerRef name kind
group
""",
}


def unlisted(document: Document) -> set[str]:
    """Return the fields that an operator would not know; raises KeyError for other kinds."""
    return {*_fields(document["spec"])} - {*NAMES[f"{document['apiVersion']}/{document['kind']}"].split()}


def _fields(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for each in tree:
            yield from _fields(each)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield name
            if name not in FREE:
                yield from _fields(value)
