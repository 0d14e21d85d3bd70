"""The rows of metrics that upstream's proxy has too: PIP-442's and the older ones.

Rule: names, labels and kinds are exactly upstream's, because existing dashboards and alerts query them.
"""

from collections.abc import Callable
from typing import Final

from protocol.command_type import CommandType
from proxy.app.metrics.reading import TOPIC_LIST, Metric, MetricSources, Row
from proxy.auth import authenticator
from proxy.clients import listener, services, sessions
from proxy.clients.requests import ASKED, REJECTED
from proxy.core.counters import BINARY_BYTES
from proxy.core.instrument import Kind
from proxy.telemetry.limiter_metrics import LimiterMetrics

__all__ = ["UPSTREAM_ROWS"]


def _pip_442(name: str, kind: Kind, text: str, read: Callable[[MetricSources], float], *, up_down: bool = False) -> Row:
    return Row(
        TOPIC_LIST + name, kind, text, lambda s: {(): read(s)}, unit="bytes" if name.endswith("_bytes") else "",
        created=kind == "counter", origin="PIP-442", up_down=up_down,
    )  # fmt: skip


def _pip_442_queue(name: str, text: str, read: Callable[[MetricSources], float]) -> Row:
    return _pip_442(name, "gauge", text, read, up_down=True)


def _wait_time(name: str, text: str, waits: Callable[[MetricSources], LimiterMetrics]) -> Row:
    return Row(
        TOPIC_LIST + name, "summary", text, durations=lambda s: waits(s).wait_millis, labels=("quantile",),
        unit="milliseconds", created=True, better="fractions of a millisecond, which upstream cuts off",
        origin="PIP-442",
    )  # fmt: skip


UPSTREAM_ROWS: Final[tuple[Metric, ...]] = (
    _pip_442("heap_memory_used_bytes", "gauge", "Heap memory held by topic lists.",
             lambda s: s.heap.statistics().held),
    _pip_442("heap_memory_limit_bytes", "gauge", "Limit of heap memory for topic lists; 0 is none.",
             lambda s: s.heap.statistics().limit),
    _pip_442("direct_memory_used_bytes", "gauge", "Direct memory held by encoded topic lists.",
             lambda s: s.direct.statistics().held),
    _pip_442("direct_memory_limit_bytes", "gauge", "Limit of direct memory for topic lists; 0 is none.",
             lambda s: s.direct.statistics().limit),
    _pip_442_queue("heap_queue_size", "Requests that wait for heap memory.",
             lambda s: s.heap.statistics().queue_size),
    _pip_442("heap_queue_max_size", "gauge", "Requests that may wait for heap memory; 0 is no limit.",
             lambda s: s.heap.statistics().max_queue),
    _pip_442_queue("direct_queue_size", "Requests that wait for direct memory.",
             lambda s: s.direct.statistics().queue_size),
    _pip_442("direct_queue_max_size", "gauge", "Requests that may wait for direct memory; 0 is no limit.",
             lambda s: s.direct.statistics().max_queue),
    _wait_time("heap_wait_time_ms", "Wait for heap memory, quantiles of the last ten minutes.",
               lambda s: s.heap_waits),
    _wait_time("direct_wait_time_ms", "Wait for direct memory, quantiles of the last ten minutes.",
               lambda s: s.direct_waits),
    _pip_442("heap_timeout", "counter", "Requests whose wait for heap memory timed out.",
             lambda s: s.heap.statistics().timed_out),
    _pip_442("direct_timeout", "counter", "Requests whose wait for direct memory timed out.",
             lambda s: s.direct.statistics().timed_out),

    sessions.ACTIVE,
    sessions.ACCEPTED,
    listener.REJECTED,
    services.BINARY_OPS,
    BINARY_BYTES,
    ASKED[CommandType.LOOKUP],
    ASKED[CommandType.PARTITIONED_METADATA],
    ASKED[CommandType.GET_TOPICS_OF_NAMESPACE],
    ASKED[CommandType.GET_SCHEMA],
    *REJECTED.values(),

    authenticator.SUCCESSES,
    authenticator.FAILURES,
    authenticator.EXPIRED,
)  # fmt: skip
