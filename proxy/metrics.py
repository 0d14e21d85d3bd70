"""Every metric of the proxy, one row each, and the Prometheus text made from the rows.

Rule: a metric is declared in `INSTRUMENTS` and nowhere else; docs/reference/metrics.md is written from it.
All numbers are read at scrape time: nothing here runs on a hot path, and prometheus_client is imported at the
first scrape only. It opens no socket and knows no connection.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from limiter.observer import LimiterStatistics
from proxy.counters import Counters, LimiterMetrics, SinkNumbers
from proxy.process_memory import (
    SYSTEM_PATHS,
    MemoryPaths,
    container_limit_bytes,
    peak_resident_bytes,
    resident_bytes,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["INSTRUMENTS", "Counters", "Instrument", "LimiterMetrics", "MetricSources", "ProxyMetrics"]

# The label text is part of PIP-442's contract: "1.0", not "1".
QUANTILES = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99, "1.0": 1.0}
TOPIC_LIST = "pulsar_proxy_topic_list_"

Kind = Literal["gauge", "counter", "summary"]
Readings = Mapping[tuple[str, ...], float]


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
    memory: MemoryPaths = SYSTEM_PATHS
    created: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric: its name without `_total`, its kind, what it means and where its numbers are.

    `read` gives one number per tuple of label values; a summary's gives the limiter's wait times instead.
    `created`: a `_created` sample is exported too, as upstream's client library does. `better` says in what a metric
    of upstream's proxy tells more here (docs/compatibility.md).
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[MetricSources], Readings] = lambda _: {}
    waits: Callable[[MetricSources], LimiterMetrics] | None = None
    labels: tuple[str, ...] = ()
    unit: str = ""
    created: bool = False
    better: str = ""
    origin: Literal["PIP-442", "pulsar", "ours"] = "ours"

    @property
    def exposed_name(self) -> str:
        """The name that a query uses."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _pip_442(name: str, kind: Kind, text: str, read: Callable[[MetricSources], float]) -> Instrument:
    return Instrument(
        TOPIC_LIST + name, kind, text, lambda s: {(): read(s)},
        unit="bytes" if name.endswith("_bytes") else "", created=kind == "counter", origin="PIP-442",
    )  # fmt: skip


def _wait_time(name: str, text: str, waits: Callable[[MetricSources], LimiterMetrics]) -> Instrument:
    return Instrument(
        TOPIC_LIST + name, "summary", text, waits=waits, labels=("quantile",), unit="milliseconds",
        created=True, better="fractions of a millisecond, which upstream cuts off", origin="PIP-442",
    )  # fmt: skip


def _classic(name: str, text: str, kind: Kind = "counter", better: str = "") -> Instrument:
    return Instrument(
        f"pulsar_proxy_{name}", kind, text, lambda s: {(): getattr(s.counters, name)},
        unit="bytes" if name.endswith("_bytes") else "", created=kind == "counter", better=better, origin="pulsar",
    )  # fmt: skip


def _counted(name: str, text: str, read: Callable[[Counters], float], unit: str = "") -> Instrument:
    return Instrument(f"pulsar_proxy_{name}", "counter", text, lambda s: {(): read(s.counters)}, unit=unit)


def _gauge(name: str, text: str, read: Callable[[Counters], float], unit: str = "") -> Instrument:
    return Instrument(f"pulsar_proxy_{name}", "gauge", text, lambda s: {(): read(s.counters)}, unit=unit)


def _labelled(name: str, label: str, text: str, read: Callable[[Counters], Mapping[str, int]]) -> Instrument:
    return Instrument(
        f"pulsar_proxy_{name}", "counter", text,
        lambda s: {(value,): count for value, count in read(s.counters).items()}, labels=(label,),
    )  # fmt: skip


def _per_limiter(
    name: str, kind: Kind, text: str, read: Callable[[LimiterStatistics], float], unit: str = ""
) -> Instrument:
    return Instrument(
        f"pulsar_proxy_lists_{name}", kind, text,
        lambda s: {("heap",): read(s.heap.statistics()), ("direct",): read(s.direct.statistics())},
        labels=("limiter",), unit=unit,
    )  # fmt: skip


def _per_sink(name: str, kind: Kind, text: str, read: Callable[[SinkNumbers], int], unit: str = "") -> Instrument:
    return Instrument(
        f"pulsar_proxy_event_log_{name}", kind, text,
        lambda s: {(sink,): read(numbers) for sink, numbers in s.counters.event_log.sinks().items()},
        labels=("sink",), unit=unit,
    )  # fmt: skip


def _memory(name: str, text: str, read: Callable[[MemoryPaths], int | None]) -> Instrument:
    def readings(sources: MetricSources) -> Readings:
        value = read(sources.memory)
        return {} if value is None else {(): value}

    return Instrument(name, "gauge", text, readings, unit="bytes")


INSTRUMENTS: tuple[Instrument, ...] = (
    _pip_442("heap_memory_used_bytes", "gauge", "Heap memory held by topic lists.",
             lambda s: s.heap.statistics().held),
    _pip_442("heap_memory_limit_bytes", "gauge", "Limit of heap memory for topic lists; 0 is none.",
             lambda s: s.heap.statistics().limit),
    _pip_442("direct_memory_used_bytes", "gauge", "Direct memory held by encoded topic lists.",
             lambda s: s.direct.statistics().held),
    _pip_442("direct_memory_limit_bytes", "gauge", "Limit of direct memory for topic lists; 0 is none.",
             lambda s: s.direct.statistics().limit),
    _pip_442("heap_queue_size", "gauge", "Requests that wait for heap memory.",
             lambda s: s.heap.statistics().queue_size),
    _pip_442("heap_queue_max_size", "gauge", "Requests that may wait for heap memory; 0 is no limit.",
             lambda s: s.heap.statistics().max_queue),
    _pip_442("direct_queue_size", "gauge", "Requests that wait for direct memory.",
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

    _classic("active_connections", "Client connections open now.", "gauge"),
    _classic("new_connections", "Client connections accepted."),
    _classic("rejected_connections", "Client connections refused by a limit on their number."),
    _classic("binary_ops", "Commands of lookup-mode clients."),
    _classic("binary_bytes", "Bytes read from clients, and from brokers for relayed clients.",
             better="up to date; upstream's moves in lumps of a GiB while it splices"),
    _classic("lookup_requests", "Topic lookups asked for."),
    _classic("partitions_metadata_requests", "Partition metadata asked for."),
    _classic("get_topics_of_namespace_requests", "Topic lists asked for."),
    _classic("get_schema_requests", "Schemas asked for."),
    _classic("rejected_lookup_requests", "Topic lookups refused by the limit on requests in work.",
             better="the limit counts requests until their answers"),
    _classic("rejected_partitions_metadata_requests",
             "Partition metadata requests refused by the limit on requests in work.",
             better="the limit counts requests until their answers"),
    _classic("rejected_get_topics_of_namespace_requests",
             "Topic list requests refused by the limit on requests in work.",
             better="the limit counts requests until their answers"),

    Instrument("pulsar_authentication_success", "counter", "Clients that proved a role.",
               lambda s: s.counters.authentication.successes,
               labels=("provider_name", "auth_method"), origin="pulsar"),
    Instrument("pulsar_authentication_failures", "counter", "Clients whose credentials were refused.",
               lambda s: s.counters.authentication.failures,
               labels=("provider_name", "auth_method", "reason"), origin="pulsar"),
    Instrument("pulsar_expired_token", "counter", "Tokens refused because they had expired.",
               lambda s: {(): s.counters.authentication.expired_tokens}, origin="pulsar"),
    _labelled("authentication_file_reloads", "result",
              "Files of keys and passwords that changed, by what became of it: a refused one leaves the old in force.",
              lambda c: c.authentication.reloads),

    _labelled("lists_answers", "outcome", "Topic list requests by how they ended.",
              lambda c: c.list_outcomes),
    _counted("lists_questions", "Topic list questions put to brokers: equal requests share one.",
             lambda c: c.list_questions),
    _counted("lists_asked_again", "Topic list questions that were lost with their connection and put once more.",
             lambda c: c.lists_asked_again),
    _counted("lists_joined", "Topic list requests that joined the question of an earlier one.",
             lambda c: c.lists_joined),
    _counted("lists_name_bytes", "Sum of the lengths of the topic names in answers, UTF-8.",
             lambda c: c.list_name_bytes, "bytes"),
    _per_limiter("queue_full", "counter", "Requests refused at once, because too many waited.",
                 lambda books: books.rejected),
    _per_limiter("cancelled", "counter", "Requests that left before they were given memory.",
                 lambda books: books.cancelled),
    _per_limiter("overshoots", "counter", "Permits that grew past the limit, one at a time.",
                 lambda books: books.overshoots),
    _per_limiter("growers_waiting", "gauge", "Permits that wait to grow.",
                 lambda books: books.growers_waiting),
    _per_limiter("peak_held_bytes", "gauge", "Most memory held at once since the start.",
                 lambda books: books.peak_held, "bytes"),
    _per_limiter("observer_errors", "counter", "Failures of the limiter's own measurement.",
                 lambda books: books.observer_errors),

    _labelled("disconnects", "cause", "Connections ended, clients' and brokers', by cause.",
              lambda c: c.disconnects),
    _gauge("client_awaited_headers", "Connections whose PROXY header has not come yet (haProxyProtocolEnabled).",
           lambda c: c.awaited_headers),
    _gauge("client_writers", "Clients for whom something waited to be written at the last look, once a second.",
           lambda c: c.writers),
    _gauge("client_stalled_readers", "Those of them that took no byte for more than a second.",
           lambda c: c.stalled_readers),
    _gauge("client_writers_kernel_bytes", "Bytes for them that the kernel has and they have not acknowledged.",
           lambda c: c.writers_kernel_bytes, "bytes"),
    _gauge("client_send_buffer_limit_bytes",
           "Kernel memory that the send buffers of all lookup-mode connections may fill, as the kernel counts it.",
           lambda c: c.client_send_buffer_bytes, "bytes"),
    _counted("client_evicted_bytes", "Bytes under way, the kernel's included, to clients closed for not reading.",
             lambda c: c.evicted_bytes, "bytes"),
    _labelled("internal_errors", "where", "Exceptions that nobody expected; each is in the log.",
              lambda c: c.internal_errors),
    _labelled("relay_bytes", "direction", "Bytes relayed.",
              lambda c: {"to_broker": c.relay_bytes_to_broker, "to_client": c.relay_bytes_to_client}),
    _labelled("watch_frames", "kind", "Frames of topic-list watchers relayed to clients.",
              lambda c: {"success": c.watch.successes, "update": c.watch.updates}),
    _counted("watch_bytes", "Sum of the sizes of these frames.", lambda c: c.watch.frame_bytes, "bytes"),
    _counted("watch_pauses", "Times a relayed broker was not read, for want of memory for such a frame.",
             lambda c: c.watch.pauses),
    _counted("watch_pause_seconds", "Sum of these pauses.", lambda c: c.watch.pause_seconds, "seconds"),
    _labelled("watch_overshoots", "reason", "Times such frames passed without memory, or no longer under it.",
              lambda c: c.watch.overshoots),
    _counted("watch_unwalkable", "Relayed connections whose broker's bytes are no frames: no longer looked at.",
             lambda c: c.watch.unwalkable),
    _labelled("http_answers", "status", "Answers given on the web ports, by class of status; not those of own pages.",
              lambda c: c.web.answers),
    _labelled("http_refused_requests", "reason", "Requests that were refused on the web ports.",
              lambda c: c.web.refused),
    _labelled("http_bytes", "direction", "Bytes of bodies passed on by the web ports.",
              lambda c: {"to_broker": c.web.bytes_to_brokers, "to_client": c.web.bytes_to_clients}),
    _gauge("http_requests_in_work", "Requests being passed on now.", lambda c: c.web.in_work),
    _gauge("http_tunnels", "WebSockets being passed through now.", lambda c: c.web.tunnels),
    _counted("http_redirects", "Redirects of brokers that were followed for clients.", lambda c: c.web.redirects),
    _counted("http_server_failures", "Times a web server could not be reached, or broke off.",
             lambda c: c.web.server_failures),
    _counted("http_cut_answers", "Answers cut off for clients: the broker broke off, or time was over.",
             lambda c: c.web.cut_answers),
    _counted("http_lists_refused", "Topic lists over HTTP that got no direct memory.",
             lambda c: c.web.lists_refused),
    Instrument("pulsar_proxy_broker_connections", "gauge", "Request connections to brokers by state.",
               lambda s: {(state,): n for state, n in s.counters.broker_connection_states().items()},
               labels=("state",)),
    Instrument("pulsar_proxy_brokers", "gauge",
               "Brokers of brokerServiceURL by state: up, down, or on trial after a failure behind TCP.",
               lambda s: {(state,): n for state, n in s.counters.broker_member_states().items()},
               labels=("state",)),
    _labelled("broker_probes", "result", "Looks at brokers that are down: one TCP connect each.",
              lambda c: c.broker_looks),
    _counted("broker_fail_overs", "Requests that were tried once more, on another broker.",
             lambda c: c.broker_fail_overs),
    _labelled("names_resolved", "result", "Host names of brokers and targets that were resolved.",
              lambda c: c.broker_names()),
    _counted("broker_connection_pauses", "Times a broker connection was not read, for want of memory.",
             lambda c: c.broker_connection_pauses),
    _labelled("broker_open_failures", "cause", "Request connections to brokers that could not be opened.",
              lambda c: c.broker_open_failures),
    _labelled("failed_requests", "kind", "Requests other than topic lists that got an error.",
              lambda c: c.failed_requests),
    _labelled("refused_requests", "reason", "Requests refused before a broker was asked.",
              lambda c: c.refused_requests),
    _counted("unknown_broker_answers", "Answers of brokers that no request waited for.",
             lambda c: c.unknown_broker_answers),
    _counted("accept_pauses", "Times accepting paused, for want of file descriptors or memory.",
             lambda c: c.accept_pauses),
    Instrument("pulsar_proxy_tls_handshakes", "counter",
               "TLS handshakes with clients and brokers by what became of them.",
               lambda s: {(peer, result): n for (peer, result), n in s.counters.tls.handshakes.items()},
               labels=("peer", "result")),
    _gauge("tls_handshakes_in_flight", "TLS handshakes with clients that have a place.",
           lambda c: c.tls.handshakes_in_flight),
    _gauge("tls_handshakes_waiting", "Clients that have begun one and wait for a place.",
           lambda c: c.tls.handshakes_waiting),
    _labelled("tls_reloads", "result", "Changes of certificate files by what became of them.",
              lambda c: c.tls.reloads),
    Instrument("pulsar_proxy_tls_cert_expiry_seconds", "gauge",
               "Seconds until this proxy's certificates expire, below 0 behind it.",
               lambda s: {(name,): seconds for name, seconds in s.counters.tls.expiries().items()},
               labels=("cert",), unit="seconds"),
    _per_sink("written", "counter", "Events that a sink has written: files, topic.", lambda n: n.written),
    _per_sink("dropped", "counter", "Events that a sink has lost, also those written and gone with an open file that "
              "somebody deleted; the next one that it wrote says how many.",
              lambda n: n.dropped),
    _per_sink("bytes", "counter", "Bytes of these events, as the sink has stored or sent them.",
              lambda n: n.bytes_written, "bytes"),
    _per_sink("errors", "counter", "Attempts to write events that failed; most are repeated.", lambda n: n.errors),
    _per_sink("buffer_bytes", "gauge", "Memory of events that a sink has not taken yet.",
              lambda n: n.buffer_bytes, "bytes"),
    _labelled("event_log_files", "result",
              "Event files: finished, finished for a proxy that had died, found damaged, deleted.",
              lambda c: c.event_log.files()),
    Instrument("pulsar_proxy_event_log_topic_keeps", "gauge",
               "1: the topic keeps events that nobody has read; 0: it loses them; absent: not known.",
               lambda s: {} if s.counters.event_log.topic_keeps is None else {(): s.counters.event_log.topic_keeps}),
    Instrument("pulsar_proxy_memory_budget_bytes", "gauge",
               "Worst case of all memory that has a limit (docs/memory.md).",
               lambda s: {(): s.counters.budget_bytes}, unit="bytes"),
    _labelled("config_reloads", "result", "Reloads of the configuration (SIGHUP) by what became of them.",
              lambda c: c.config_reloads),
    Instrument("pulsar_proxy_config_last_success_timestamp_seconds", "gauge",
               "When a configuration was last put in force, at the start or by a reload; Unix time.",
               lambda s: {(): s.counters.config_applied_at}, unit="seconds"),
    _memory("pulsar_proxy_memory_resident_bytes", "Resident memory of the process.", resident_bytes),
    _memory("pulsar_proxy_memory_peak_bytes", "Largest resident memory since the start.",
            peak_resident_bytes),
    _memory("pulsar_proxy_memory_container_limit_bytes",
            "Memory limit of the container; absent if there is none.", container_limit_bytes),
)  # fmt: skip


class ProxyMetrics:
    """The Prometheus text of all instruments, each sample labelled with the cluster."""

    def __init__(self, cluster: str, sources: MetricSources) -> None:
        self._cluster = {"cluster": cluster}
        self._sources = sources
        self._registry: CollectorRegistry | None = None

    def render(self) -> bytes:
        """Give the text that /metrics answers with (Prometheus text format 0.0.4)."""
        from prometheus_client import CollectorRegistry, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(self)
        return generate_latest(self._registry)

    def collect(self) -> "Iterator[Metric]":
        """Yield a metric family per instrument (the collector's side of prometheus_client)."""
        from prometheus_client.metrics_core import Metric

        for instrument in INSTRUMENTS:
            family = Metric(instrument.name, instrument.help, instrument.kind)
            if instrument.waits is not None:
                self._add_waits(family, instrument.waits(self._sources))
            for values, number in instrument.read(self._sources).items():
                labels = self._cluster | dict(zip(instrument.labels, values, strict=True))
                family.add_sample(instrument.exposed_name, labels, number)
            if instrument.created:
                family.add_sample(f"{instrument.name}_created", self._cluster, self._sources.created)
            yield family

    def _add_waits(self, family: "Metric", waits: LimiterMetrics) -> None:
        samples = waits.wait_millis
        for text, value in zip(QUANTILES, samples.quantiles(*QUANTILES.values()), strict=True):
            family.add_sample(family.name, self._cluster | {"quantile": text}, value)
        family.add_sample(f"{family.name}_count", self._cluster, samples.count)
        family.add_sample(f"{family.name}_sum", self._cluster, samples.total)
