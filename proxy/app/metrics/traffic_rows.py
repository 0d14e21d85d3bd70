"""The rows of metrics about clients, brokers and their traffic that only this proxy has."""

from typing import Final

from proxy.app.metrics.reading import Metric
from proxy.auth import authenticator
from proxy.brokers import connection as broker_connection
from proxy.brokers import discovery, resolver
from proxy.brokers import gate as target_gate
from proxy.brokers import pool as broker_pool
from proxy.clients import requests as client_requests
from proxy.clients import sessions
from proxy.core import counters
from proxy.net import dial_places, ended_sockets, proxy_headers, send_buffers, write_watch
from proxy.net.spill import moves, read_back, space, spill
from proxy.net.tls import arrivals
from proxy.net.tls import failures as tls_failures
from proxy.net.tls import files as tls_files
from proxy.relay import native_engine, traffic, watch_limits
from proxy.relay.metrics import RELAYS
from proxy.requests import broker_turns, forwarding, schemas
from proxy.requests.request_bytes import COMMANDS
from proxy.requests.topic_lists import memory_metrics, unproven
from proxy.requests.topic_lists import service as list_service
from proxy.telemetry.events.log import EVENTS
from proxy.telemetry.tenants import TENANTS
from proxy.web.forward import answer_writer, gate, replay_copies, topic_list_permits, upstreams
from proxy.web.http import errors as http_errors
from proxy.web.http import upgrades

__all__ = ["TRAFFIC_ROWS"]


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
    list_service.SHARING,
    unproven.HELD_BYTES,
    unproven.WAITING,
    broker_turns.LOOKUPS_WAITING,
    list_service.ANSWER_BYTES,
    *memory_metrics.LIMITERS,

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
    *RELAYS,
    *COMMANDS,
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
    *EVENTS,
    *TENANTS,
)  # fmt: skip
