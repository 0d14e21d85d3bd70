"""Readings of all metrics at one moment.

Rule: `take` reads all instruments in one step of the event loop, so the numbers of a reading are consistent. This
module runs on no hot path and imports no metrics library.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from proxy.core.counters import Counters, Declared, Derived, readings
from proxy.core.instrument import Instrument, Readings
from proxy.telemetry.durations import Durations

# The label text is part of PIP-442's contract: "1.0", not "1".
QUANTILES: Final = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99, "1.0": 1.0}

Metric = Declared[Any] | Derived[Any]


class Distribution(NamedTuple):
    """The durations of a summary in milliseconds: quantiles of the window, and counts by bucket since the start."""

    quantiles: tuple[float, ...]
    samples: int
    total: float
    buckets: tuple[int, ...]


class Reading(NamedTuple):
    """The numbers of an instrument at one moment."""

    instrument: Instrument
    numbers: Readings
    distribution: Distribution | None


def take(metrics: Iterable[Metric], counters: Counters) -> list[Reading]:
    """Read all metrics that there are; call this on the event loop, which owns the numbers."""
    looked: dict[Callable[[], Any], Any] = {}
    return [reading for metric in metrics if (reading := _read(metric, counters, looked)) is not None]


def _read(metric: Metric, counters: Counters, looked: dict[Callable[[], Any], Any]) -> Reading | None:
    if isinstance(metric, Declared):
        return Reading(metric, counters.reading(metric), None)
    found = counters.derived(metric, looked)
    if found is None:
        return None if metric.optional else Reading(metric, {}, None)
    if isinstance(found, Durations):
        quantiles = tuple(found.quantiles(*QUANTILES.values()))
        return Reading(metric, {}, Distribution(quantiles, found.count, found.total, tuple(found.buckets)))
    return Reading(metric, readings(found), None)
