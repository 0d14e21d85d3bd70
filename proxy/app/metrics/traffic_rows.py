"""The rows of metrics about clients, brokers and their traffic that only this proxy has."""

from typing import Final

from proxy.app.metrics.reading import Metric, MetricSources, Row
from proxy.app.metrics.rows import of_bound, of_commands, of_pool, per_limiter, per_sink, per_tenant
from proxy.auth import authenticator
from proxy.brokers import connection as broker_connection
from proxy.brokers import discovery, resolver
from proxy.brokers import gate as target_gate
from proxy.brokers import pool as broker_pool
from proxy.clients import requests as client_requests
from proxy.clients import sessions
from proxy.core import counters
from proxy.core.instrument import Readings
from proxy.net import dial_places, ended_sockets, proxy_headers, send_buffers, write_watch
from proxy.net.spill import moves, read_back, space, spill
from proxy.net.tls import arrivals
from proxy.net.tls import failures as tls_failures
from proxy.net.tls import files as tls_files
from proxy.relay import native_engine, traffic, watch_limits
from proxy.relay.memory.sockets import NO_SOCKET_MEMORY
from proxy.requests import broker_turns, forwarding, schemas
from proxy.requests.topic_lists import service as list_service
from proxy.requests.topic_lists import unproven
from proxy.web.forward import answer_writer, gate, replay_copies, topic_list_permits, upstreams
from proxy.web.http import errors as http_errors
from proxy.web.http import upgrades

__all__ = ["TRAFFIC_ROWS"]


def _topic_keeps(sources: MetricSources) -> Readings:
    keeps = None if sources.event_log is None else sources.event_log.topic_keeps
    return {} if keeps is None else {(): int(keeps)}


def _event_files(sources: MetricSources) -> Readings:
    return {} if sources.event_log is None else {(result,): n for result, n in sources.event_log.files().items()}


def _sockets(sources: MetricSources) -> Readings:
    memory = NO_SOCKET_MEMORY if sources.relays is None else sources.relays.weighed
    return {("broker",): memory.towards_brokers, ("client",): memory.towards_clients}


def _sharing(sources: MetricSources) -> Readings:
    groups = sources.counters[list_service.GROUPS].value
    return {(): (groups + sources.counters[list_service.JOINED].value) / groups if groups else 1.0}


TRAFFIC_ROWS: Final[tuple[Metric, ...]] = (
    authenticator.RELOADS,

    list_service.ANSWERS,
    list_service.DUE,
    list_service.PROMPT,
    list_service.QUESTIONS,
    list_service.ASKED_AGAIN,
    list_service.GIVEN_UP,
    schemas.GIVEN_UP,
    list_service.JOINED,
    list_service.GROUPS,
    Row("pulsar_proxy_lists_coalescing_ratio", "gauge",
        "Average number of requests in a group since the start; 1: no answer was shared.", _sharing, unit="ratio"),
    unproven.HELD_BYTES,
    unproven.WAITING,
    broker_turns.LOOKUPS_WAITING,
    list_service.ANSWER_BYTES,
    per_limiter("queue_full", "counter", "Requests refused at once because the queue was full.",
                lambda statistics: statistics.rejected),
    per_limiter("cancelled", "counter", "Requests cancelled before their permit was granted.",
                lambda statistics: statistics.cancelled),
    per_limiter("overshoots", "counter", "Permits that grew past the limit, one at a time.",
                lambda statistics: statistics.overshoots),
    per_limiter("growers_waiting", "gauge", "Permits that wait to grow.",
                lambda statistics: statistics.growers_waiting),
    per_limiter("peak_held_bytes", "gauge", "Most memory held at once since the start.",
                lambda statistics: statistics.peak_held, "bytes"),
    per_limiter("observer_errors", "counter", "Failures of the limiter's observer, which measures waits.",
                lambda statistics: statistics.observer_errors),

    counters.DISCONNECTS,
    ended_sockets.ENDED_SOCKETS,
    ended_sockets.ENDED_BYTES,
    ended_sockets.ENDED_RESETS,
    proxy_headers.AWAITED_HEADERS,
    write_watch.WRITERS,
    write_watch.STALLED_READERS,
    write_watch.WRITERS_KERNEL_BYTES,
    send_buffers.BUFFER_LIMIT_BYTES,
    send_buffers.MEMORY_USED_BYTES,
    send_buffers.SMALL_BUFFER_ANSWERS,
    write_watch.EVICTED_BYTES,
    space.HELD_BYTES,
    space.LIMIT_BYTES,
    space.FILES,
    moves.MOVING,
    read_back.HELD_BYTES,
    moves.MOVED_LISTS,
    moves.WRITTEN_BYTES,
    read_back.READ_BYTES,
    read_back.READ_ERRORS,
    spill.KEPT,
    counters.INTERNAL_ERRORS,
    traffic.RELAY_BYTES,
    Row("pulsar_proxy_relay_socket_bytes", "gauge", "Kernel memory of relayed sockets, by the side that they lead to.",
        _sockets, labels=("side",), unit="bytes"),
    of_bound("limit_bytes", "gauge", "Kernel memory that all relayed sockets may hold together (relaySocketMemoryMB).",
             lambda bound: bound.limit_bytes, "bytes"),
    of_bound("tight", "gauge",
             "1: half of that is in use, so receive windows of relays that stand still are narrow; 0: less is.",
             lambda bound: float(bound.tight)),
    of_bound("ended", "counter",
             "Relays that were ended because the kernel held too much for all of them (cause memory_limit).",
             lambda bound: bound.ended),
    of_pool("limit_bytes", "gauge", "Memory that relays may hold together (relayMemoryPoolMB).",
            lambda pool: pool.limit_bytes, "bytes"),
    of_pool("used_bytes", "gauge", "Bytes that relays have read and their receivers have not taken.",
            lambda pool: pool.used_bytes, "bytes"),
    of_pool("muted_connections", "gauge",
            "Directions of relays that are not read: the pool is used up, and their receivers take nothing.",
            lambda pool: pool.muted),
    of_pool("muted_seconds", "counter", "Time that directions have waited for memory, all added up.",
            lambda pool: pool.muted_millis / 1000, "seconds"),
    of_pool("overshoots", "counter", "Reads that took the pool above its limit, at most one of each thread at a time.",
            lambda pool: pool.overshoots),
    of_pool("depleted_seconds", "counter", "Time in which nothing of the pool was free.",
            lambda pool: pool.depleted_millis / 1000, "seconds"),
    of_commands("limit_bytes", "gauge", "Memory for commands that are held for brokers (maxConcurrentLookupRequestMB).",
                lambda held: held.limit_bytes, "bytes"),
    of_commands("used_bytes", "gauge", "Bytes of commands that are held for brokers.",
                lambda held: held.used_bytes, "bytes"),
    of_commands("muted_connections", "gauge", "Clients that are not read because that memory is used up.",
                lambda held: held.muted),
    of_commands("muted_seconds", "counter", "Time that clients have waited for that memory, all added up.",
                lambda held: held.muted_millis / 1000, "seconds"),
    of_commands("overshoots", "counter", "Commands that took that memory above its limit.",
                lambda held: held.overshoots),
    of_commands("depleted_seconds", "counter", "Time in which nothing of that memory was free.",
                lambda held: held.depleted_millis / 1000, "seconds"),
    native_engine.REFUSALS,
    native_engine.TRUNCATED_STREAMS,
    watch_limits.FRAMES,
    watch_limits.FRAME_BYTES,
    watch_limits.PAUSES,
    watch_limits.PAUSE_SECONDS,
    watch_limits.OVERSHOOTS,
    watch_limits.UNWALKABLE,
    http_errors.ANSWERS,
    http_errors.REFUSED,
    answer_writer.BODY_BYTES,
    gate.IN_WORK,
    upgrades.TUNNELS,
    upstreams.REDIRECTS,
    replay_copies.COPIES_DROPPED,
    upstreams.SERVER_FAILURES,
    answer_writer.CUT_ANSWERS,
    topic_list_permits.LISTS_REFUSED,
    broker_pool.CONNECTIONS,
    discovery.BROKERS,
    discovery.REFUSING,
    discovery.PROBES,
    discovery.FAIL_OVERS,
    resolver.NAMES,
    resolver.HANGING,
    dial_places.DIALS,
    dial_places.GIVEN_UP,
    broker_connection.PAUSES,
    broker_pool.OPEN_FAILURES,
    forwarding.FAILED,
    client_requests.REFUSED,
    target_gate.CREDENTIALS_WITHHELD,
    broker_connection.UNANSWERED_QUESTIONS,
    broker_connection.UNKNOWN_ANSWERS,
    sessions.ACCEPTING_PAUSED,
    counters.ACCEPT_PAUSES,
    tls_failures.HANDSHAKES,
    arrivals.IN_FLIGHT,
    arrivals.WAITING,
    tls_files.RELOADS,
    tls_files.EXPIRIES,
    tls_files.LIST_EXPIRIES,
    per_sink("written", "counter", "Events that a sink has written; the sinks are files and topic.",
             lambda n: n.written),
    per_sink("dropped", "counter", "Events that a sink has lost, including events in an open file that was deleted; "
             "the next event that is written has the number.",
             lambda n: n.dropped),
    per_sink("bytes", "counter", "Bytes of written events, as the sink has stored or sent them.",
             lambda n: n.bytes_written, "bytes"),
    per_sink("errors", "counter", "Attempts to write events that failed; most are repeated.", lambda n: n.errors),
    per_sink("buffer_bytes", "gauge", "Memory of events that a sink has not written yet.",
             lambda n: n.buffer_bytes, "bytes"),
    Row("pulsar_proxy_event_log_files", "counter",
        "Event files by result: finished, finished for a proxy that had died, found damaged, deleted.",
        _event_files, labels=("result",)),
    Row("pulsar_proxy_event_log_topic_keeps", "gauge",
        "1: the topic keeps events that nobody has read; 0: the topic loses them; absent: not known.",
        _topic_keeps),
    per_tenant("lists", "Topic lists asked for, by tenant; a bounded number of tenants, the rest is (others).",
               lambda n: n.lists),
    per_tenant("list_bytes", "Bytes of the topic lists sent to clients, by tenant.", lambda n: n.sent_bytes, "bytes"),
    per_tenant("list_refusals", "Topic lists refused for lack of memory or time, by tenant.", lambda n: n.refusals),
)  # fmt: skip
