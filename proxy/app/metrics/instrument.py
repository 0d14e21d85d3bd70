"""What one metric is: its names here and in OpenTelemetry, its kind and unit, and where its numbers are.

Rule: an instrument says everything once; Prometheus' text, the OTLP export and the reference page are made from it.
`take` reads all of them in one step of the event loop, so that the numbers of one moment belong together. Nothing here
runs on a hot path or knows a metrics library.
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

__all__ = ["QUANTILES", "Distribution", "Instrument", "LimiterBooks", "MetricSources", "Reading", "Readings", "take"]

# The label text is part of PIP-442's contract: "1.0", not "1".
QUANTILES: Final = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99, "1.0": 1.0}
TOPIC_LIST: Final = "pulsar_proxy_topic_list_"

Kind = Literal["gauge", "counter", "summary"]
OtelKind = Literal["gauge", "counter", "histogram", "up-down counter"]
Unit = Literal["", "bytes", "seconds", "milliseconds", "ratio"]
Readings = Mapping[tuple[str, ...], float]

# How the end of a Prometheus name says its unit, and what OpenTelemetry has instead.
_SUFFIXES: Final[Mapping[Unit, str]] = {
    "": "", "bytes": "_bytes", "seconds": "_seconds", "milliseconds": "_ms", "ratio": "_ratio",
}  # fmt: skip
_OTEL_UNITS: Final[Mapping[Unit, str]] = {"": "", "bytes": "By", "seconds": "s", "milliseconds": "s", "ratio": "1"}
_MILLIS_IN: Final[Mapping[Unit, float]] = {"milliseconds": 1.0, "seconds": 1000.0}


class LimiterBooks(Protocol):
    """What a limiter shows of itself (`limiter.semaphore.AsyncSemaphore` does)."""

    def statistics(self) -> LimiterStatistics:
        """Give the numbers of this moment."""


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The objects that metrics are read from; `created` is when counting began (Unix seconds)."""

    counters: Counters
    heap: LimiterBooks
    direct: LimiterBooks
    heap_waits: LimiterMetrics
    direct_waits: LimiterMetrics
    lag: Durations = field(default_factory=lambda: Durations(time.monotonic))
    tenants: TenantTracker = field(default_factory=TenantTracker)
    memory: MemoryPaths = SYSTEM_PATHS
    created: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric: its name without `_total`, its kind, what it means and where its numbers are.

    `read` gives one number per tuple of label values; a summary's `durations` gives times instead. `created`: a
    `_created` sample is exported too, as upstream's client library does. `better` says in what a metric of upstream's
    proxy tells more here (docs/compatibility.md). `otel` is the name in OpenTelemetry, where convention has another one
    than the rule (`otel_name`) gives; `up_down`: a gauge that is an up-down counter there.
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

    @property
    def exposed_name(self) -> str:
        """The name that a query uses."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def otel_name(self) -> str:
        """The name in OpenTelemetry.

        PIP-442's are its own: the Prometheus name without prefix and unit, words joined by dots. Others have the first
        words of the Prometheus name as namespace, and no unit; a collector that turns them into Prometheus' names again
        (dots to underscores, unit and `_total` at the end) gets those of /metrics.
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
        """How many milliseconds one unit of a summary has."""
        return _MILLIS_IN[self.unit]


class Distribution(NamedTuple):
    """The durations of one summary, milliseconds: quantiles of the window, and all that was ever counted by bucket."""

    quantiles: tuple[float, ...]
    samples: int
    total: float
    buckets: tuple[int, ...]


class Reading(NamedTuple):
    """The numbers of one instrument at one moment."""

    instrument: Instrument
    numbers: Readings
    distribution: Distribution | None


class _Once:
    """Books that are read once for all instruments: with thousands of keys or hundreds of brokers a reading is dear."""

    def __init__(self, books: LimiterBooks) -> None:
        self._books = books
        self._taken: LimiterStatistics | None = None

    def statistics(self) -> LimiterStatistics:
        if self._taken is None:
            self._taken = self._books.statistics()
        return self._taken


def take(instruments: Iterable[Instrument], sources: MetricSources) -> list[Reading]:
    """Read all instruments; called on the event loop, since that owns the books."""
    sources = replace(sources, heap=_Once(sources.heap), direct=_Once(sources.direct))
    return [_read(instrument, sources) for instrument in instruments]


def _read(instrument: Instrument, sources: MetricSources) -> Reading:
    if instrument.durations is None:
        # A copy: what is read may be a book itself, and a reading is held by another thread, and until the next one.
        return Reading(instrument, dict(instrument.read(sources)), None)
    samples = instrument.durations(sources)
    quantiles = tuple(samples.quantiles(*QUANTILES.values()))
    return Reading(instrument, {}, Distribution(quantiles, samples.count, samples.total, tuple(samples.buckets)))
