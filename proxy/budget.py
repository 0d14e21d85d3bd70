"""Add up the memory that the configured limits allow, and hold it against the container's limit.

The sum of docs/memory.md as code: every term is a limit somebody enforces.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.config import Config

IDLE_PROCESS_BYTES: Final = 64 * 1024 * 1024
CONNECTION_AT_REST_BYTES: Final = 8 * 1024
BROKER_CONNECTION_BYTES: Final = 20 * 1024
QUEUED_WAITER_BYTES: Final = 600
# Task, timeout, decoded request: measured with 10,000 lookups that a broker does not answer.
REQUEST_BYTES: Final = 8 * 1024


class BudgetLine(NamedTuple):
    """One owner of memory and the most it may hold, in bytes."""

    owner: str
    key: str
    limit_bytes: int


def worst_case(config: Config) -> Iterator[BudgetLine]:
    """List every budget of the configuration; a limit of 0 (none) counts as nothing here and is warned about
    elsewhere.
    """
    connections = config.max_concurrent_inbound_connections
    queues = (
        config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size
        + config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size
    )
    yield BudgetLine("process at rest", "", IDLE_PROCESS_BYTES)
    yield BudgetLine("decoded topic lists", "maxTopicListInFlightHeapMemSizeMB", config.heap_limit_bytes)
    yield BudgetLine("encoded topic lists", "maxTopicListInFlightDirectMemSizeMB", config.direct_limit_bytes)
    yield BudgetLine("one answer over each limit", "topicListMaxAnswerBytes", 2 * config.topic_list_answer_limit_bytes)
    yield BudgetLine("connections at rest", "maxConcurrentInboundConnections", connections * CONNECTION_AT_REST_BYTES)
    yield BudgetLine(
        "kernel send buffers",
        "clientSocketSendBufferBytes",
        connections * 2 * config.client_socket_send_buffer_bytes,
    )
    yield BudgetLine("relays, both directions stalled", "relayBufferBytes", connections * 2 * config.relay_buffer_bytes)
    yield BudgetLine(
        "broker connections",
        "brokerConnectionsTotal",
        config.broker_connections_total * (BROKER_CONNECTION_BYTES + 2 * config.broker_socket_receive_buffer_bytes),
    )
    yield BudgetLine(
        "requests under way",
        "maxConcurrentLookupRequests",
        config.max_concurrent_lookup_requests * REQUEST_BYTES,
    )
    yield BudgetLine("queues", "...PermitsAcquireQueueSize", queues * QUEUED_WAITER_BYTES)


def worst_case_bytes(config: Config) -> int:
    """Sum all budgets. A connection is a lookup connection or a relay, so only the larger of the two terms counts."""
    lines = {line.owner: line.limit_bytes for line in worst_case(config)}
    kernel, relays = lines.pop("kernel send buffers"), lines.pop("relays, both directions stalled")
    return sum(lines.values()) + max(kernel, relays)
