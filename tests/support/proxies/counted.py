"""The numbers of a proxy by the names that an operator sees in /metrics, without `pulsar_proxy_` and `_total`."""

from functools import cache
from typing import Any

from proxy.app.metrics.table import INSTRUMENTS
from proxy.core.counters import PREFIX, Counters, Declared


@cache
def declared(name: str) -> Declared[Any]:
    """Return the declaration of a metric that is counted."""
    [found] = [metric for metric in INSTRUMENTS if metric.name in (name, PREFIX + name)]
    assert isinstance(found, Declared), f"{name} is derived from other numbers"
    return found


def counted(counters: Counters, name: str, *labels: str) -> int:
    """Return one number, without a fraction; 0 if nothing with these labels was counted."""
    return int(counters.reading(declared(name)).get(labels, 0))


def counted_by(counters: Counters, name: str) -> dict[Any, Any]:
    """Return the numbers of a metric by its label, or by the tuple of its labels."""
    numbers = counters.reading(declared(name))
    return {labels[0] if len(labels) == 1 else labels: number for labels, number in numbers.items()}
