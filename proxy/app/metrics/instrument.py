"""Declare metrics: the names for Prometheus and OpenTelemetry, kind, unit, and where the numbers are read from.

Rule: an instrument is the only declaration of a metric; the Prometheus text, the OTLP export and the reference page are
made from it. `take` reads all instruments in one step of the event loop, so the numbers of a reading are consistent.
This module runs on no hot path and imports no metrics library.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Protocol

from limiter.statistics import LimiterStatistics
from proxy.app.metrics.counters import Counters
from proxy.core.process_memory import SYSTEM_PATHS, MemoryPaths
from proxy.telemetry.durations import Durations
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.telemetry.tenants import TenantTracker

__all__ = ["QUANTILES", "Distribution", "Instrument", "LimiterSource", "MetricSources", "Reading", "Readings", "take"]

# The label text is part of PIP-442's contract: "1.0", not "1".
QUANTILES: Final = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99, "1.0": 1.0}
TOPIC_LIST: Final = "pulsar_proxy_topic_list_"

Kind = Literal["gauge", "counter", "summary"]
OtelKind = Literal["gauge", "counter", "histogram", "up-down counter"]
Unit = Literal["", "bytes", "seconds", "milliseconds", "ratio"]
Readings = Mapping[tuple[str, ...], float]

# The suffix of a Prometheus name for each unit, and the unit in OpenTelemetry.
_SUFFIXES: Final[Mapping[Unit, str]] = {
    "": "", "bytes": "_bytes", "seconds": "_seconds", "milliseconds": "_ms", "ratio": "_ratio",
}  # fmt: skip
_OTEL_UNITS: Final[Mapping[Unit, str]] = {"": "", "bytes": "By", "seconds": "s", "milliseconds": "s", "ratio": "1"}
_MILLIS_IN: Final[Mapping[Unit, float]] = {"milliseconds": 1.0, "seconds": 1000.0}


class LimiterSource(Protocol):
    """The statistics of a limiter, such as `limiter.semaphore.AsyncSemaphore`."""

    def statistics(self) -> LimiterStatistics:
        """Return the limiter's numbers at this moment."""


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The objects that metrics are read from; `created` is the Unix time at which counting began."""

    counters: Counters
    heap: LimiterSource
    direct: LimiterSource
    heap_waits: LimiterMetrics
    direct_waits: LimiterMetrics
    lag: Durations = field(default_factory=lambda: Durations(time.monotonic))
    tenants: TenantTracker = field(default_factory=TenantTracker)
    memory: MemoryPaths = SYSTEM_PATHS
    created: float = field(default_factory=time.time)
    # The bytes held at each node that is a line of the budget, by the line's label.
    held: Callable[[], Mapping[str, float]] = dict


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric: its name without `_total`, its kind, its meaning, and where its numbers are.

    `read` returns one number per tuple of label values; for a summary `durations` returns the durations instead.
    `created`: export a `_created` sample too, as upstream's client library does. `better` says in what a metric of
    upstream's proxy is more exact here (docs/compatibility.md). `otel` is the OpenTelemetry name where the convention
    differs from the rule of `otel_name`; `up_down`: a gauge that OpenTelemetry calls an up-down counter. `present`
    returns whether there is such a metric now: what is switched off has no family at all; None: always.
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[MetricSources], Readings] = lambda _: {}
    durations: Callable[[MetricSources], Durations] | None = None
    labels: tuple[str, ...] = ()
    unit: Unit = ""
    created: bool = False
    better: str = ""
    origin: Literal["PIP-442", "pulsar", "convention", "ours"] = "ours"
    otel: str = ""
    up_down: bool = False
    present: Callable[[MetricSources], bool] | None = None

    @property
    def exposed_name(self) -> str:
        """The name in Prometheus queries."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def otel_name(self) -> str:
        """The name in OpenTelemetry.

        PIP-442 has a rule for its metrics: the Prometheus name without prefix and unit, words joined by dots. Other
        names have the first words of the Prometheus name as namespace, and no unit; a collector that translates them
        back (dots to underscores, unit and `_total` at the end) gets the names of /metrics.
        """
        if self.otel:
            return self.otel
        bare = self.name.removesuffix(_SUFFIXES[self.unit])
        if self.origin == "PIP-442":
            total = ".total" if self.kind == "counter" else ""
            return bare.removeprefix("pulsar_proxy_").replace("_", ".") + total
        for prefix in ("pulsar_proxy_", "pulsar_", "process_"):
            if bare.startswith(prefix):
                return prefix.replace("_", ".") + bare.removeprefix(prefix)
        raise AssertionError(f"{self.name}: no namespace")

    @property
    def otel_kind(self) -> OtelKind:
        """The kind in OpenTelemetry."""
        if self.kind == "summary":
            return "histogram"
        if self.kind == "counter":
            return "counter"
        return "up-down counter" if self.up_down else "gauge"

    @property
    def otel_unit(self) -> str:
        """The unit in OpenTelemetry (UCUM); PIP-442 writes 1 for plain numbers, all others have none."""
        return "1" if self.origin == "PIP-442" and not self.unit else _OTEL_UNITS[self.unit]

    @property
    def millis_per_unit(self) -> float:
        """The milliseconds in one unit of a summary."""
        return _MILLIS_IN[self.unit]


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


class _Once:
    """The statistics of a limiter, read once for all instruments: with thousands of keys a reading is expensive."""

    def __init__(self, limiter: LimiterSource) -> None:
        self._limiter = limiter
        self._taken: LimiterStatistics | None = None

    def statistics(self) -> LimiterStatistics:
        if self._taken is None:
            self._taken = self._limiter.statistics()
        return self._taken


def take(instruments: Iterable[Instrument], sources: MetricSources) -> list[Reading]:
    """Read all instruments; call this on the event loop, which owns the counters."""
    sources = replace(sources, heap=_Once(sources.heap), direct=_Once(sources.direct))
    return [
        _read(instrument, sources)
        for instrument in instruments
        if instrument.present is None or instrument.present(sources)
    ]


def _read(instrument: Instrument, sources: MetricSources) -> Reading:
    if instrument.durations is None:
        # Copy the numbers: `read` may return a live dict, and another thread keeps the reading until the next one.
        return Reading(instrument, dict(instrument.read(sources)), None)
    samples = instrument.durations(sources)
    quantiles = tuple(samples.quantiles(*QUANTILES.values()))
    return Reading(instrument, {}, Distribution(quantiles, samples.count, samples.total, tuple(samples.buckets)))
