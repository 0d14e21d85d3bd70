"""The parts that metrics are read from, rows that derive a metric from them, and readings of both.

Rule: `take` reads all instruments in one step of the event loop, so the numbers of a reading are consistent. This
module runs on no hot path and imports no metrics library.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from limiter.statistics import LimiterStatistics
from proxy.app.metrics.counters import MemoryBudget
from proxy.core.counters import Counters, Declared
from proxy.core.instrument import Instrument, Readings
from proxy.core.process_memory import SYSTEM_PATHS, MemoryPaths
from proxy.overload.counters import OverloadCounters
from proxy.telemetry.durations import Durations
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.telemetry.tenants import TenantTracker

if TYPE_CHECKING:
    from proxy.net.send_buffers import KernelMemory
    from proxy.relay.engines import RelayEngines
    from proxy.requests.request_bytes import RequestBytes
    from proxy.telemetry.events.log import EventLog, SinkNumbers

# The label text is part of PIP-442's contract: "1.0", not "1".
QUANTILES: Final = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99, "1.0": 1.0}
TOPIC_LIST: Final = "pulsar_proxy_topic_list_"


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
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    overload: OverloadCounters = field(default_factory=OverloadCounters)
    lag: Durations = field(default_factory=lambda: Durations(time.monotonic))
    tenants: TenantTracker = field(default_factory=TenantTracker)
    memory: MemoryPaths = SYSTEM_PATHS
    created: float = field(default_factory=time.time)
    # The bytes held at each node that is a line of the budget, by the line's label.
    held: Callable[[], Mapping[str, float]] = dict
    send_memory: "KernelMemory | None" = None
    commands: "RequestBytes | None" = None
    relays: "RelayEngines | None" = None
    event_log: "EventLog | None" = None

    def sinks(self) -> "Mapping[str, SinkNumbers]":
        """Return the numbers of each sink of the event log."""
        return {} if self.event_log is None else self.event_log.sinks()


@dataclass(frozen=True, slots=True, eq=False)
class Row(Instrument):
    """A metric that is derived from other numbers.

    `read` returns one number per tuple of label values; for a summary `durations` returns the durations instead.
    `present` returns whether there is such a metric now: what is switched off has no family at all; None: always.
    """

    read: Callable[[MetricSources], Readings] = lambda _: {}
    durations: Callable[[MetricSources], Durations] | None = None
    present: Callable[[MetricSources], bool] | None = None


Metric = Declared[Any] | Row


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


def take(metrics: Iterable[Metric], sources: MetricSources) -> list[Reading]:
    """Read all metrics; call this on the event loop, which owns the numbers."""
    sources = replace(sources, heap=_Once(sources.heap), direct=_Once(sources.direct))
    return [_read(metric, sources) for metric in metrics if _is_present(metric, sources)]


def _is_present(metric: Metric, sources: MetricSources) -> bool:
    return not isinstance(metric, Row) or metric.present is None or metric.present(sources)


def _read(metric: Metric, sources: MetricSources) -> Reading:
    if not isinstance(metric, Row):
        return Reading(metric, sources.counters.reading(metric), None)
    if metric.durations is None:
        # Copy the numbers: `read` may return a live dict, and another thread keeps the reading until the next one.
        return Reading(metric, dict(metric.read(sources)), None)
    samples = metric.durations(sources)
    quantiles = tuple(samples.quantiles(*QUANTILES.values()))
    return Reading(metric, {}, Distribution(quantiles, samples.count, samples.total, tuple(samples.buckets)))
