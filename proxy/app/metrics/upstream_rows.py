"""The rows of metrics that upstream's proxy has too: PIP-442's and the older ones.

Rule: names, labels and kinds are exactly upstream's, because existing dashboards and alerts query them.
"""

from collections.abc import Callable
from typing import Final

from protocol.command_type import CommandType
from proxy.app.metrics.counters import Counters
from proxy.app.metrics.instrument import TOPIC_LIST, Instrument, Kind, MetricSources
from proxy.telemetry.limiter_metrics import LimiterMetrics

__all__ = ["UPSTREAM_ROWS"]


def _pip_442(
    name: str, kind: Kind, text: str, read: Callable[[MetricSources], float], *, up_down: bool = False
) -> Instrument:
    return Instrument(
        TOPIC_LIST + name, kind, text, lambda s: {(): read(s)}, unit="bytes" if name.endswith("_bytes") else "",
        created=kind == "counter", origin="PIP-442", up_down=up_down,
    )  # fmt: skip


def _pip_442_queue(name: str, text: str, read: Callable[[MetricSources], float]) -> Instrument:
    return _pip_442(name, "gauge", text, read, up_down=True)


def _wait_time(name: str, text: str, waits: Callable[[MetricSources], LimiterMetrics]) -> Instrument:
    return Instrument(
        TOPIC_LIST + name, "summary", text, durations=lambda s: waits(s).wait_millis, labels=("quantile",),
        unit="milliseconds", created=True, better="fractions of a millisecond, which upstream cuts off",
        origin="PIP-442",
    )  # fmt: skip


def _classic(
    name: str, text: str, read: Callable[[Counters], int], kind: Kind = "counter", better: str = ""
) -> Instrument:
    return Instrument(
        f"pulsar_proxy_{name}", kind, text, lambda s: {(): read(s.counters)},
        unit="bytes" if name.endswith("_bytes") else "", created=kind == "counter", better=better, origin="pulsar",
    )  # fmt: skip


UPSTREAM_ROWS: Final[tuple[Instrument, ...]] = (
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

    _classic("active_connections", "Client connections open now.",
             lambda c: c.clients.active_connections, "gauge"),
    _classic("new_connections", "Client connections accepted.",
             lambda c: c.clients.new_connections),
    _classic("rejected_connections", "Client connections refused by a limit on their number.",
             lambda c: c.clients.rejected_connections),
    _classic("binary_ops", "Commands of lookup-mode clients.",
             lambda c: c.clients.binary_ops),
    _classic("binary_bytes", "Bytes read from clients, and from brokers for relayed clients.",
             lambda c: c.clients.binary_bytes + c.relay.binary_bytes,
             better="always current; upstream's counter moves in steps of a GiB while it splices"),
    _classic("lookup_requests", "Topic lookups requested.", lambda c: c.requests.asked[CommandType.LOOKUP]),
    _classic("partitions_metadata_requests", "Partition metadata requested.",
             lambda c: c.requests.asked[CommandType.PARTITIONED_METADATA]),
    _classic("get_topics_of_namespace_requests", "Topic lists requested.",
             lambda c: c.requests.asked[CommandType.GET_TOPICS_OF_NAMESPACE]),
    _classic("get_schema_requests", "Schemas requested.", lambda c: c.requests.asked[CommandType.GET_SCHEMA]),
    _classic("rejected_lookup_requests", "Topic lookups refused by the limit on requests in work.",
             lambda c: c.requests.rejected[CommandType.LOOKUP],
             better="the limit counts requests until their answers"),
    _classic("rejected_partitions_metadata_requests",
             "Partition metadata requests refused by the limit on requests in work.",
             lambda c: c.requests.rejected[CommandType.PARTITIONED_METADATA],
             better="the limit counts requests until their answers"),
    _classic("rejected_get_topics_of_namespace_requests",
             "Topic list requests refused by the limit on requests in work.",
             lambda c: c.requests.rejected[CommandType.GET_TOPICS_OF_NAMESPACE],
             better="the limit counts requests until their answers"),

    Instrument("pulsar_authentication_success", "counter", "Clients that proved a role.",
               lambda s: s.counters.authentication.successes,
               labels=("provider_name", "auth_method"), origin="pulsar"),
    Instrument("pulsar_authentication_failures", "counter", "Clients whose credentials were refused.",
               lambda s: s.counters.authentication.failures,
               labels=("provider_name", "auth_method", "reason"), origin="pulsar",
               better="a client without credentials counts once, as NO_PROVIDER, not for the last provider asked"),
    Instrument("pulsar_expired_token", "counter", "Tokens refused because they had expired.",
               lambda s: {(): s.counters.authentication.expired_tokens}, origin="pulsar"),
)  # fmt: skip
