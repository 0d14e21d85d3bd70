"""What a query names, held against the table of instruments: metrics, and labels in selectors and groupings.

Rule: names are found by their spelling, not by a parser; whether a query is one at all is promtool's to say.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

SUFFIXES = ("_count", "_sum", "_created")
# Prometheus' own, and those that every sample of this proxy or of its target has.
FOREIGN_METRICS = {"up"}
COMMON_LABELS = {"cluster", "job", "instance", "namespace", "pod"}

# A recording rule has colons in its name.
METRIC = re.compile(r"(?<![\w:])(?:(?:pulsar|process)_[\w:]+|up\b)")
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
VARIABLE = re.compile(r"\$\w+")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


class Row(Protocol):
    """What is needed of an instrument."""

    @property
    def exposed_name(self) -> str:
        """The name that a query uses."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Its own labels."""


def substituted(query: str) -> str:
    """Put values in place of Grafana's variables."""
    for name in ("__rate_interval", "__interval", "__range"):
        query = query.replace(f"${name}", "5m")
    return VARIABLE.sub(".*", query)


def metrics(query: str) -> set[str]:
    """Name the metrics that a query asks for."""
    return set(METRIC.findall(GROUPING.sub("", re.sub(r'"[^"]*"', '""', query))))


def labels(query: str) -> Iterator[tuple[str, str]]:
    """Yield each selected label with its metric; groupings belong to any metric of the query (empty)."""
    for metric, selector in SELECTOR.findall(query):
        yield from ((metric, label) for label in LABEL.findall(selector))
    for group in GROUPING.findall(query):
        yield from (("", label.strip()) for label in group.split(",") if label.strip())


def unknown_names(query: str, instruments: Iterable[Row], more_labels: Iterable[str] = ()) -> set[str]:
    """Name the metrics and labels of a query that no instrument has."""
    rows = {row.exposed_name: set(row.labels) for row in instruments}
    known = rows | {name + suffix: own for name, own in rows.items() for suffix in SUFFIXES}
    asked = metrics(query)
    unknown = asked - known.keys() - FOREIGN_METRICS
    common = COMMON_LABELS | set(more_labels)
    of_the_query = set().union(*(known.get(metric, set()) for metric in asked)) | common
    for metric, label in labels(query):
        if label not in (known.get(metric, set()) | common if metric else of_the_query):
            unknown.add(f"{metric}{{{label}}}")
    return unknown
