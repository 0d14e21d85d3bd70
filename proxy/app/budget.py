"""Add up the memory that the configured limits allow, and hold it against the container's limit.

The sum of docs/memory.md as code: every term is a limit somebody enforces.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from eventlog.drain import BLOCK_BYTES
from limiter.shares import MAX_IDLE_DEBTORS
from protocol.command_walker import HEAD_BYTES
from proxy.auth.client_authentication import MAX_FORWARDED_BYTES
from proxy.config.config import Config
from proxy.relay.relay_log import NAMES_BYTES
from proxy.web.admin.control_socket import NO_SOCKET
from proxy.web.admin.listener import ASKER_BYTES
from proxy.web.admin.listener import MOST_CONNECTIONS as MOST_ASKERS
from proxy.web.forward.settings import WINDOW_BUFFERS, web_targets

IDLE_PROCESS_BYTES: Final = 64 * 1024 * 1024
CONNECTION_AT_REST_BYTES: Final = 8 * 1024
BROKER_CONNECTION_BYTES: Final = 20 * 1024
# What TLS adds to a connection at most: OpenSSL's object (16 KiB at rest), a record that is not whole and a small read
# behind it (22 KiB), and a record that the kernel has not taken (17 KiB).
TLS_CONNECTION_BYTES: Final = 56 * 1024
# The event loop's own TLS, of connections that aiohttp opens: its read buffer of 256 KiB, and what OpenSSL keeps.
LOOP_TLS_BYTES: Final = 320 * 1024
# Half a frame (4 KiB) and unread answers (4 KiB) of a client that makes use of both.
UNFINISHED_BYTES: Final = 8 * 1024
# Six marks of four numbers and what they are kept in, for a client that something waits for.
WRITER_BYTES: Final = 1536
QUEUED_WAITER_BYTES: Final = 600
# Task, timeout, decoded request: measured with 10,000 lookups that a broker does not answer.
REQUEST_BYTES: Final = 8 * 1024
# The same for a frame of 4 KiB full of properties, whose decoded form is the largest: measured at 22.3 KB, and
# 1.6 KB more if there is an event log.
LARGEST_REQUEST_BYTES: Final = 24 * 1024
# Measured at 8.8 KB: task and parser of an idle connection.
WEB_CONNECTION_BYTES: Final = 16 * 1024
# Objects of both connections and of the request, measured at 41 KB.
WEB_REQUEST_BYTES: Final = 48 * 1024
# What the kernel makes of the buffers that each connection of the web ports, and to web services, is given.
WEB_KERNEL_BUFFERS: Final = 6
# A block of events in hand, put together and compressed; of pulsar-client also its copy, its batch and what it sends.
SINK_BLOCKS: Final = 3
TOPIC_SINK_BLOCKS: Final = 6
# The library itself, with its threads and its connection: measured at 22 MB.
PULSAR_CLIENT_BYTES: Final = 32 * 1024 * 1024
# The library that sends metrics to a collector, its thread and an export under way: measured at 10.7 MiB, and 2.5 MiB
# more for certificates of the system's authorities.
OTLP_BYTES: Final = 20 * 1024 * 1024
# Names in events that are remembered (events/identities.py): 3 x 4,096 of 1.2 KiB at most, and 4,096 of 0.5 KiB.
EVENT_NAMES_BYTES: Final = 17 * 1024 * 1024
# What the allocator and free slabs add to both limits: as docs/memory.md promises.
SLACK_PERCENT: Final = 15
# A share, and its key: a name that came in a frame of 4 KiB at most.
DEBTOR_BYTES: Final = 4352
# Those in which keys take turns: heap, direct, estimates and questions of the broker.
SHARED_SEMAPHORES: Final = 4


class BudgetLine(NamedTuple):
    """One owner of memory and the most it may hold, in bytes."""

    owner: str
    key: str
    limit_bytes: int


def worst_case(config: Config, *, exports: bool = False) -> Iterator[BudgetLine]:
    """List every budget of the configuration; a limit of 0 (none) counts as nothing here and is warned about
    elsewhere.

    `exports` says that metrics go to an OpenTelemetry collector, which the environment decides.
    """
    yield BudgetLine("process at rest", "", IDLE_PROCESS_BYTES)
    if exports:
        yield BudgetLine("export of metrics", "", OTLP_BYTES)
    yield from _topic_lists(config)
    yield from _connections(config)
    yield from _requests(config)
    yield from _web(config)
    yield from _admin(config)
    yield from event_log(config)


def event_log(config: Config) -> Iterator[BudgetLine]:
    """List the budgets of the event log: a line for each sink, and one for what they have in common."""
    buffer_bytes = config.event_log_buffer_mb * 1024 * 1024
    if config.event_log_directory:
        yield BudgetLine("event log, files", "eventLogDirectory", buffer_bytes + SINK_BLOCKS * BLOCK_BYTES)
    if config.event_log_topic:
        library = PULSAR_CLIENT_BYTES + TOPIC_SINK_BLOCKS * BLOCK_BYTES
        yield BudgetLine("event log, topic", "eventLogTopic", buffer_bytes + library)
    if config.event_log_directory or config.event_log_topic:
        yield BudgetLine("event log, names", "", EVENT_NAMES_BYTES)


def _web(config: Config) -> Iterator[BudgetLine]:
    if not config.has_web_port:
        return
    connections, buffer_bytes = config.max_http_server_connections, config.http_output_buffer_size
    kernel_bytes = WEB_KERNEL_BUFFERS * buffer_bytes
    at_rest = WEB_CONNECTION_BYTES + 2 * config.http_max_request_header_size
    key = "maxHttpServerConnections"
    yield BudgetLine("connections of the web ports", key, connections * (at_rest + kernel_bytes))
    if config.web_service_port_tls is not None:
        yield BudgetLine("TLS of the web ports", key, connections * TLS_CONNECTION_BYTES)
    if web_targets(config).any:
        each = WEB_REQUEST_BYTES + 2 * WINDOW_BUFFERS * buffer_bytes + kernel_bytes
        requests = config.max_concurrent_http_requests
        yield BudgetLine("requests passed on", "maxConcurrentHttpRequests", requests * each)
        if config.tls_enabled_with_broker:
            yield BudgetLine("TLS of requests passed on", "maxConcurrentHttpRequests", requests * LOOP_TLS_BYTES)


def _admin(config: Config) -> Iterator[BudgetLine]:
    doors = (config.control_socket_path != NO_SOCKET) + bool(config.admin_api_address)
    if doors:
        yield BudgetLine("askers of the admin API", "adminApiAddress", doors * MOST_ASKERS * ASKER_BYTES)


def _topic_lists(config: Config) -> Iterator[BudgetLine]:
    heap, direct = config.heap_limit_bytes, config.direct_limit_bytes
    yield BudgetLine("decoded topic lists", "maxTopicListInFlightHeapMemSizeMB", heap)
    yield BudgetLine("encoded topic lists", "maxTopicListInFlightDirectMemSizeMB", direct)
    yield BudgetLine("slack of the two", "", (heap + direct) * SLACK_PERCENT // 100)
    yield BudgetLine("one answer over each limit", "topicListMaxAnswerBytes", 2 * config.topic_list_answer_limit_bytes)


def _connections(config: Config) -> Iterator[BudgetLine]:
    clients, brokers = config.max_concurrent_inbound_connections, config.broker_connections_total
    key = "maxConcurrentInboundConnections"
    kernel_bytes, receive_bytes = config.client_socket_send_buffer_bytes, config.broker_socket_receive_buffer_bytes
    yield BudgetLine("connections at rest", key, clients * CONNECTION_AT_REST_BYTES)
    yield BudgetLine("unfinished frames, unread answers", key, clients * UNFINISHED_BYTES)
    yield BudgetLine("books of writers", key, clients * WRITER_BYTES)
    ends = clients * ((config.service_port_tls is not None) + config.tls_enabled_with_broker)
    if config.tls_enabled_with_broker:
        ends += brokers
    if ends:
        yield BudgetLine("TLS connections", key, ends * TLS_CONNECTION_BYTES)
    yield BudgetLine("kernel send buffers", "clientSocketSendBufferBytes", clients * 2 * kernel_bytes)
    yield BudgetLine("relays, both directions stalled", "relayBufferBytes", clients * 2 * config.relay_buffer_bytes)
    if config.authentication_enabled and config.forward_authorization_credentials:
        # Of clients, and of connections to brokers whose client has left.
        holders = (clients + brokers) * MAX_FORWARDED_BYTES
        yield BudgetLine("credentials to forward", "forwardAuthorizationCredentials", holders)
    yield BudgetLine(
        "broker connections", "brokerConnectionsTotal", brokers * (BROKER_CONNECTION_BYTES + 2 * receive_bytes)
    )
    if config.proxy_log_level != "0":
        # Until a reload that turns it on, nothing of this is there.
        yield BudgetLine("relayed commands that are shown", "proxyLogLevel", NAMES_BYTES + clients * 2 * HEAD_BYTES)


def _requests(config: Config) -> Iterator[BudgetLine]:
    requests = config.max_concurrent_lookup_requests
    queues = (
        config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size
        + config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size
    )
    yield BudgetLine("requests under way", "maxConcurrentLookupRequests", requests * LARGEST_REQUEST_BYTES)
    yield BudgetLine("queues", "...PermitsAcquireQueueSize", queues * QUEUED_WAITER_BYTES)
    if config.topic_list_fairness != "fifo":
        debtors = SHARED_SEMAPHORES * MAX_IDLE_DEBTORS
        yield BudgetLine("keys that owe", "topicListFairness", debtors * DEBTOR_BYTES)


def worst_case_parts(config: Config, *, exports: bool = False) -> dict[str, int]:
    """Give the limit of each owner, bytes."""
    return {line.owner: line.limit_bytes for line in worst_case(config, exports=exports)}


def worst_case_bytes(config: Config, *, exports: bool = False) -> int:
    """Sum all budgets of the configuration, bytes."""
    return total_bytes(worst_case_parts(config, exports=exports))


def total_bytes(parts: Mapping[str, int]) -> int:
    """Sum all parts. A connection is a lookup connection or a relay, so only the larger of the two terms counts."""
    kernel, relays = parts["kernel send buffers"], parts["relays, both directions stalled"]
    return sum(parts.values()) - min(kernel, relays)
