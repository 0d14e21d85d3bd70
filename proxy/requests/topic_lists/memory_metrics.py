"""The metrics of both memories of topic lists.

Rule: names, labels and kinds of PIP-442's are exactly upstream's, because existing dashboards and alerts query them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from limiter.statistics import LimiterStatistics
from proxy.core.counters import PREFIX, Derived
from proxy.core.instrument import Kind, Unit
from proxy.telemetry.durations import Durations


class Memories(NamedTuple):
    """The statistics of both limiters, each read once for all metrics, and the waits at them."""

    heap: LimiterStatistics
    direct: LimiterStatistics
    heap_waits: Durations
    direct_waits: Durations


def _pip_442(name: str, kind: Kind, text: str, read: Callable[[Memories], int]) -> Derived[Memories]:
    return Derived(
        f"{PREFIX}topic_list_{name}", kind, text, read, unit="bytes" if name.endswith("_bytes") else "",
        created=kind == "counter", origin="PIP-442", up_down=name.endswith("queue_size"),
    )  # fmt: skip


def _wait_time(name: str, text: str, read: Callable[[Memories], Durations]) -> Derived[Memories]:
    return Derived(
        f"{PREFIX}topic_list_{name}", "summary", text, read, labels=("quantile",), unit="milliseconds", created=True,
        better="fractions of a millisecond, which upstream cuts off", origin="PIP-442",
    )  # fmt: skip


def _of_both(
    name: str, kind: Kind, text: str, read: Callable[[LimiterStatistics], int], unit: Unit = ""
) -> Derived[Memories]:
    return Derived(
        f"{PREFIX}lists_{name}", kind, text, lambda both: {"heap": read(both.heap), "direct": read(both.direct)},
        labels=("limiter",), unit=unit,
    )  # fmt: skip


PIP_442: Final = (
    _pip_442("heap_memory_used_bytes", "gauge", "Heap memory held by topic lists.", lambda both: both.heap.held),
    _pip_442("heap_memory_limit_bytes", "gauge", "Limit of heap memory for topic lists; 0 is none.",
             lambda both: both.heap.limit),
    _pip_442("direct_memory_used_bytes", "gauge", "Direct memory held by encoded topic lists.",
             lambda both: both.direct.held),
    _pip_442("direct_memory_limit_bytes", "gauge", "Limit of direct memory for topic lists; 0 is none.",
             lambda both: both.direct.limit),
    _pip_442("heap_queue_size", "gauge", "Requests that wait for heap memory.", lambda both: both.heap.queue_size),
    _pip_442("heap_queue_max_size", "gauge", "Requests that may wait for heap memory; 0 is no limit.",
             lambda both: both.heap.max_queue),
    _pip_442("direct_queue_size", "gauge", "Requests that wait for direct memory.",
             lambda both: both.direct.queue_size),
    _pip_442("direct_queue_max_size", "gauge", "Requests that may wait for direct memory; 0 is no limit.",
             lambda both: both.direct.max_queue),
    _wait_time("heap_wait_time_ms", "Wait for heap memory, quantiles of the last ten minutes.",
               lambda both: both.heap_waits),
    _wait_time("direct_wait_time_ms", "Wait for direct memory, quantiles of the last ten minutes.",
               lambda both: both.direct_waits),
    _pip_442("heap_timeout", "counter", "Requests whose wait for heap memory timed out.",
             lambda both: both.heap.timed_out),
    _pip_442("direct_timeout", "counter", "Requests whose wait for direct memory timed out.",
             lambda both: both.direct.timed_out),
)  # fmt: skip
LIMITERS: Final = (
    _of_both("queue_full", "counter", "Requests refused at once because the queue was full.",
             lambda statistics: statistics.rejected),
    _of_both("cancelled", "counter", "Requests cancelled before their permit was granted.",
             lambda statistics: statistics.cancelled),
    _of_both("overshoots", "counter", "Permits that grew past the limit, one at a time.",
             lambda statistics: statistics.overshoots),
    _of_both("growers_waiting", "gauge", "Permits that wait to grow.", lambda statistics: statistics.growers_waiting),
    _of_both("peak_held_bytes", "gauge", "Most memory held at once since the start.",
             lambda statistics: statistics.peak_held, "bytes"),
    _of_both("observer_errors", "counter", "Failures of the limiter's observer, which measures waits.",
             lambda statistics: statistics.observer_errors),
)  # fmt: skip
