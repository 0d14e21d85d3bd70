"""Declare each limit on memory once, and add the declarations up for a configuration.

Rule: a `Line` is data. The proxy's own sum, the memory of the Helm charts and the tables of docs/memory.md and
docs/capacity.md are all computed from `LINES`, so a new limit is one more `Line` here, then `make generate`.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from math import prod
from typing import Any, Final, NamedTuple

from eventlog.drain import BLOCK_BYTES
from limiter.fair_line import MOST_DEBTORS
from proxy.app.memory import nodes
from proxy.app.metrics.counters import BudgetLine
from proxy.auth.identity import MAX_AUTH_DATA_BYTES
from proxy.auth.kept_credentials import FREE_BYTES
from proxy.brokers.pool import LARGE_BUFFERS_OF
from proxy.clients.large_frames import LARGE_FRAME_COPIES, MAX_HANDSHAKE_FRAME_BYTES
from proxy.clients.services import SHARE_PART
from proxy.config.config import Config
from proxy.config.keys.key import Key
from proxy.config.values import (
    BROKER_RECEIVE_BYTES,
    BROKER_RECEIVE_TIMES,
    HANDSHAKE_BYTES,
    HANDSHAKE_PART,
    SMALL_SEND_BUFFER_BYTES,
)
from proxy.net.ended_sockets import A_CONNECTION_BYTES, LEAST_BYTES
from proxy.net.spill.moves import MOVES_AT_ONCE, STEP_BYTES
from proxy.net.spill.read_back import READ_BACK_BYTES
from proxy.net.spill.space import MOST_FILES
from proxy.net.tcp_buffers import TcpBuffers
from proxy.overload.bounds import ANSWER_BYTES, MOST_TOPICS, PAUSED_BYTES, RECEIVED_BYTES, TOPIC_BYTES
from proxy.relay.relay_log import NAMES_BYTES, TAPPED_BYTES
from proxy.requests.places import CROWDED_SHARE, FEW_WAITING
from proxy.requests.request_bytes import RESERVE_OF
from proxy.web.admin.control_socket import NO_SOCKET
from proxy.web.admin.listener import ADMIN_CLIENT_BYTES
from proxy.web.admin.listener import MOST_CONNECTIONS as MOST_ADMIN_CLIENTS
from proxy.web.forward.settings import METRICS_CONNECTIONS, TUNNELS_PART, WINDOW_BUFFERS, WebTargets

MIB: Final = 1024 * 1024
IDLE_PROCESS_BYTES: Final = 64 * MIB
# What reads tokens, certificates and PKCS#12 stores: measured, 71 MiB at rest, 75 with TLS, HTTP and an event log.
CRYPTOGRAPHY_BYTES: Final = 12 * MIB
CONNECTION_AT_REST_BYTES: Final = 8 * 1024
BROKER_CONNECTION_BYTES: Final = 20 * 1024
# Receive buffers of brokers, in units of the small one: all have that, and a part the large one. The kernel doubles.
RECEIVE_TIMES: Final = 2 * (1 + (BROKER_RECEIVE_TIMES - 1) // LARGE_BUFFERS_OF)
# Sessions of TLS (measured: 3.8 KB of a client; 8.1 KB towards a broker with three RSA certificates of 4,096 bits).
CLIENT_SESSION_BYTES: Final = 4 * 1024
BROKER_SESSION_BYTES: Final = 8 * 1024
# An incomplete record with a small read after it (measured: 24 KB), and a record that the kernel has not accepted.
UNREAD_RECORD_BYTES: Final = 24 * 1024
# A relay's thread opens all that it reads, so its session keeps less than a record, and a read of 4 KiB behind it.
RELAYED_RECORD_BYTES: Final = 21 * 1024
UNSENT_RECORD_BYTES: Final = 17 * 1024
# Most that TLS adds to a connection of lookup mode. A half-done handshake has less: 8 KB, 27 KB with all that a client
# or a host that it made up may send of it. A broker that somebody named may send more, and is trusted not to.
TLS_CLIENT_BYTES: Final = CLIENT_SESSION_BYTES + UNREAD_RECORD_BYTES + UNSENT_RECORD_BYTES
TLS_BROKER_BYTES: Final = BROKER_SESSION_BYTES + UNREAD_RECORD_BYTES + UNSENT_RECORD_BYTES
# The certificates that a client has shown: all of its handshake (`CLIENT_HANDSHAKE_BYTES`), and what keeping costs.
CLIENT_CHAIN_BYTES: Final = 18 * 1024
# A relay's thread opens a read in one buffer and seals another; both grow by doubling, and hold beside the read what a
# session keeps (50 KiB at most), or what sealing adds.
SEALING_BUFFERS: Final = 4
SEALING_BYTES: Final = 128 * 1024
# The event loop's own TLS, for connections that aiohttp opens: a read, what it is opened into and sealed from, and
# OpenSSL's own memory. Measured, with the other lines: 312 KiB of a GET, 543 of a request that stalls both ways, 478 of
# a WebSocket.
LOOP_TLS_BYTES: Final = 256 * 1024
# An unfinished frame (4 KiB) and unread answers (4 KiB) of a client that has both.
UNFINISHED_BYTES: Final = 8 * 1024
# The progress records of a client with unread answers: six marks of four numbers, and their containers.
WRITER_BYTES: Final = 1536
# Task, clock and decoded request that a broker does not answer: 6.0 KB measured of a list that nobody shares, 5.6 of a
# schema, 2.6 of one of many equal lists, 1.8 of a lookup. A request that waits for memory waits in one place at a time:
# its waiter, 726 B measured, is part of these.
REQUEST_BYTES: Final = 6656
# The same for a frame of 4 KiB full of properties, the largest decoded: 22.3 KB measured. So decoding takes four times
# the bytes of a command.
LARGEST_REQUEST_BYTES: Final = 22 * 1024 + 512
COMMAND_COPIES: Final = 4
# Beside the limit for the bytes of commands there is a reserve, a quarter of it.
COPIES_WITH_RESERVE: Final = COMMAND_COPIES + COMMAND_COPIES // RESERVE_OF
RECORD_BYTES: Final = 2 * 1024  # the notes of an event log about a request: measured at 1.7 KB, with all of its steps
# A topic list that waits as it came: a frame of at most 4 KiB and its entry (230 bytes measured); with an event log
# 270 more.
WAITING_LIST_BYTES: Final = 4608
WAITING_RECORD_BYTES: Final = 512
# Task and parser of an idle connection: measured at 8.8 KB.
WEB_CONNECTION_BYTES: Final = 16 * 1024
# The objects of the head in work and of the one behind it, beside their text, with most fields (measured).
WEB_HEADS_BYTES: Final = 28 * 1024
WEB_READ_BUFFERS: Final = 2  # a read of a full receive buffer, in units of `httpOutputBufferSize`
# Objects of both connections and of a request: 41 KB.
WEB_REQUEST_BYTES: Final = 48 * 1024
# Kernel memory of a connection of the web ports or to a web service, in units of `httpOutputBufferSize`.
WEB_KERNEL_BUFFERS: Final = 6
PAGE_KERNEL_BUFFERS: Final = 3  # where the web ports send only own pages
# A request that is passed on, beside its client's connection: the read of the upload's window is that connection's.
WEB_REQUEST_BUFFERS: Final = 2 * WINDOW_BUFFERS - WEB_READ_BUFFERS + WEB_KERNEL_BUFFERS
# Copies of a block of events: collected, joined, compressed; a topic's client adds a copy, a batch and a frame.
SINK_BLOCKS: Final = 3
TOPIC_SINK_BLOCKS: Final = 6
# The library pulsar-client with its threads and its connection: measured at 22 MB.
PULSAR_CLIENT_BYTES: Final = 32 * MIB
# The library that sends metrics to a collector, its thread and an export: 10.7 MiB, and 2.5 MiB of authorities.
OTLP_BYTES: Final = 20 * MIB
# The cached names in events (telemetry/events/identities.py): 3 x 512 of at most 1.3 KiB, and 512 of 0.5 KiB.
EVENT_NAMES_BYTES: Final = 2304 * 1024
# Pages of lists on disk that are being written, or were read a moment ago, and the kernel's record of each file.
SPILL_PAGE_CACHE_BYTES: Final = 16 * MIB
SPILL_FILE_BYTES: Final = 4 * 1024
# Allocator overhead and free slabs, on top of both limits, as docs/memory.md promises.
SLACK_PERCENT: Final = 15
# The debt of an idle key, with the key: a name from a frame of at most 4 KiB.
DEBTOR_BYTES: Final = 4352
# Semaphores that serve keys in turn, with those of one broker.
SHARED_SEMAPHORES: Final = sum("`topicListFairness`" in node.turns for node in nodes.NODES)


class Fact(Enum):
    """A condition that follows from more than one key; the charts have a template for each."""

    EXPORTS = "exports"
    WEB_TARGETS = "webTargets"
    FORWARDS = "forwards"
    RELAY_POOL = "relayPool"
    NO_RELAY_POOL = "noRelayPool"
    SOCKET_BOUND = "relaySocketBound"
    NO_SOCKET_BOUND = "noRelaySocketBound"
    SEND_MEMORY = "sendMemory"
    NO_SEND_MEMORY = "noSendMemory"
    COMMAND_BYTES = "commandBytes"
    NO_COMMAND_BYTES = "noCommandBytes"
    THROTTLE_ACTS = "throttleActs"


class Derived(Enum):
    """A quantity that follows from more than one key; the charts have a template for each."""

    ANSWER_LIMIT = "answerLimit"
    RELAY_READERS = "relayReaders"


class Given(NamedTuple):
    """A condition that holds if at least one of the keys has a value."""

    keys: tuple[Key[Any], ...]


class Is(NamedTuple):
    """A condition that holds if the key has this value, or, with `holds` false, another value."""

    key: Key[Any]
    word: str
    holds: bool = True


Condition = Given | Is | Fact


class Part(NamedTuple):
    """A product: `each` times the value of every factor, counted if every condition holds."""

    each: int
    times: tuple[Key[int] | Derived, ...] = ()
    when: tuple[Condition, ...] = ()


class Load(IntEnum):
    """The lightest load under which a line can be full."""

    REST = 0
    STORM = 1
    WORST = 2


class Line(NamedTuple):
    """An owner of memory: the sum of its parts, in bytes.

    `label` is its word in metrics, which stays when the text for people, `owner`, changes. `key` is the key to change
    first. Only the largest of the lines with the same `alternative` counts.
    """

    label: str
    owner: str
    key: str
    parts: tuple[Part, ...]
    load: Load = Load.WORST
    alternative: str = ""
    divided_by: int = 1


_CLIENTS: Final = nodes.CLIENTS.key()
_BROKERS: Final = nodes.BROKERS.key()
_REQUESTS: Final = nodes.LOOKUPS.key()
_HEAP: Final = nodes.HEAP.key()
_DIRECT: Final = nodes.DIRECT.key()
_SEND: Final = nodes.SEND_BUFFERS.key()
_POOL: Final = nodes.RELAY_POOL.key()
_SOCKETS: Final = nodes.RELAY_SOCKETS.key()
_WEB_CONNECTIONS: Final = nodes.WEB_CONNECTIONS.key()
_WEB_REQUESTS: Final = nodes.WEB_REQUESTS.key()
_WEB_BUFFER: Final = Config.http_output_buffer_size
_CLIENT_TLS: Final = Given((Config.service_port_tls,))
_ASKS_CERTIFICATES: Final = Given((Config.tls_trust_certs_file_path, Config.tls_trust_store))
_BROKER_TLS: Final = Is(Config.tls_enabled_with_broker, "true")
_WEB_TLS: Final = Given((Config.web_service_port_tls,))
_WEB_PORT: Final = Given((Config.web_service_port, Config.web_service_port_tls))
_METRICS_PORT: Final = Given((Config.metrics_port,))
_PASSES_ON: Final = (_WEB_PORT, Fact.WEB_TARGETS)
_FILES: Final = Given((Config.event_log_directory,))
_SPILL: Final = Given((Config.topic_list_spill_directory,))
_TOPIC: Final = Given((Config.event_log_topic,))
_EVENT_LOG: Final = Given((Config.event_log_directory, Config.event_log_topic))
# A connection is either a lookup connection or a relay, so only the larger line counts.
_LOOKUP_OR_RELAY: Final = "lookup or relay"
_TLS_LOOKUP_OR_RELAY: Final = "TLS of lookup or relay"

_NO_DIRECT: Final = Is(Config.max_topic_list_in_flight_direct_mem_size_mb, "0")
_THRESHOLD: Final = Is(Config.overload_throttle_enabled, "true")
_ADAPTIVE: Final = Is(Config.adaptive_publisher_throttling_enabled, "true")
_LISTS_ON_DISK: Final = Line(
    "spill_lists", "lists to and from disk", Config.topic_list_spill_directory.name,
    (Part(READ_BACK_BYTES + MOVES_AT_ONCE * STEP_BYTES, when=(_SPILL,)),), Load.STORM,
)  # fmt: skip
# Each of these keys loads `cryptography`, once.
_READ_BY: Final = (
    Config.authentication_enabled, Config.tls_enabled_with_key_store, Config.broker_client_tls_enabled_with_key_store,
)  # fmt: skip
_PROCESS_LINES: Final = (
    Line("process", "process at rest", "",
         (Part(IDLE_PROCESS_BYTES),
          *(Part(CRYPTOGRAPHY_BYTES,
                 when=(Is(key, "true"), *(Is(each, "true", holds=False) for each in _READ_BY[:earlier])))
            for earlier, key in enumerate(_READ_BY))), Load.REST),
    Line("metrics_export", "export of metrics", "", (Part(OTLP_BYTES, when=(Fact.EXPORTS,)),), Load.REST),
)  # fmt: skip
_TOPIC_LIST_LINES: Final = (
    Line(nodes.HEAP.label, "decoded topic lists", _HEAP.name, (Part(MIB, (_HEAP,)),), Load.STORM),
    Line(nodes.DIRECT.label, "encoded topic lists", _DIRECT.name, (Part(MIB, (_DIRECT,)),), Load.STORM),
    Line("lists_slack", "slack of the two", "",
         (Part(SLACK_PERCENT * MIB, (_HEAP,)), Part(SLACK_PERCENT * MIB, (_DIRECT,))),
         Load.STORM, divided_by=100),
    _LISTS_ON_DISK,
    Line("spill_files", "page cache and files of lists on disk", Config.topic_list_spill_directory.name,
         (Part(SPILL_PAGE_CACHE_BYTES + MOST_FILES * SPILL_FILE_BYTES, when=(_SPILL,)),), Load.STORM),
    # Heap permits of lists grow. Direct ones are taken whole, and no list is larger than that limit: what grows in
    # direct memory is unread answers of clients, by 64 KiB.
    Line("answer_overshoot", "one answer over the limit of decoded lists", Config.topic_list_max_answer_bytes.name,
         (Part(1, (Derived.ANSWER_LIMIT,)),)),
)  # fmt: skip
_CONNECTION_LINES: Final = (
    Line("connections", "connections at rest", _CLIENTS.name,
         (Part(CONNECTION_AT_REST_BYTES, (_CLIENTS,)),), Load.REST),
    Line("unfinished_frames", "unfinished frames, unread answers", _CLIENTS.name,
         (Part(UNFINISHED_BYTES, (_CLIENTS,)),)),
    Line(nodes.HANDSHAKES.label, "large frames before CONNECTED", _DIRECT.name,
         (Part(MIB // HANDSHAKE_PART, (_DIRECT,)), Part(HANDSHAKE_BYTES, when=(_NO_DIRECT,))), Load.STORM),
    # Growth of a single frame at a time may overshoot, in each of the two memories.
    Line(nodes.FRAMES.label, "large requests", _DIRECT.name, (Part(100 // SHARE_PART * MIB, (_DIRECT,)),), Load.STORM,
         divided_by=100),
    Line("frame_overshoot", "one large frame over its limit", Config.max_lookup_frame_bytes.name,
         (Part(LARGE_FRAME_COPIES, (Config.max_lookup_frame_bytes,)),
          Part(LARGE_FRAME_COPIES * MAX_HANDSHAKE_FRAME_BYTES))),
    Line("writers", "books of writers", _CLIENTS.name, (Part(WRITER_BYTES, (_CLIENTS,)),), Load.STORM),
    Line("tls_connections", "TLS connections", _CLIENTS.name,
         (Part(TLS_CLIENT_BYTES, (_CLIENTS,), (_CLIENT_TLS,)),
          Part(CLIENT_CHAIN_BYTES, (_CLIENTS,), (_CLIENT_TLS, _ASKS_CERTIFICATES))), Load.STORM, _TLS_LOOKUP_OR_RELAY),
    # What is sealed for a relay's sockets and has not left is part of the pool, or of what stalled relays hold.
    Line("tls_relays", "TLS of relays", _CLIENTS.name,
         (Part(CLIENT_SESSION_BYTES + RELAYED_RECORD_BYTES, (_CLIENTS,), (_CLIENT_TLS,)),
          Part(CLIENT_CHAIN_BYTES, (_CLIENTS,), (_CLIENT_TLS, _ASKS_CERTIFICATES)),
          Part(BROKER_SESSION_BYTES + RELAYED_RECORD_BYTES, (_CLIENTS,), (_BROKER_TLS,))),
         alternative=_TLS_LOOKUP_OR_RELAY),
    # The same buffers serve both sides.
    Line("relay_threads_tls", "TLS of the relay threads", Config.relay_buffer_bytes.name,
         tuple(part for when in ((_CLIENT_TLS,), (_BROKER_TLS, Is(Config.service_port_tls, ""))) for part in (
             Part(SEALING_BUFFERS, (Derived.RELAY_READERS, Config.relay_buffer_bytes), when),
             Part(SEALING_BYTES, (Derived.RELAY_READERS,), when)))),
    # Linux doubles the buffer size that a program sets. The large buffers of a few connections fill their sum, so that
    # line stands beside the relays.
    Line("send_buffers", "kernel send buffers", Config.client_socket_send_buffer_bytes.name,
         (Part(2, (_CLIENTS, Config.client_socket_send_buffer_bytes), (Fact.NO_SEND_MEMORY,)),
          Part(2 * SMALL_SEND_BUFFER_BYTES, (_CLIENTS,), (Fact.SEND_MEMORY,))), Load.STORM, _LOOKUP_OR_RELAY),
    Line(nodes.SEND_BUFFERS.label, "large kernel send buffers", _SEND.name,
         (Part(MIB, (_SEND,), (Fact.SEND_MEMORY,)),), Load.STORM),
    # Without a bound in sum the kernel takes up to half as much again of unsent bytes, and doubles a receive buffer.
    Line("stalled_relays", "relays, both directions stalled", Config.relay_buffer_bytes.name,
         (Part(2, (_CLIENTS, Config.relay_buffer_bytes), (Fact.NO_RELAY_POOL,)),
          Part(3, (_CLIENTS, Config.relay_unsent_bytes), (Fact.NO_SOCKET_BOUND,)),
          # Clients' receive buffers are set while a throttle acts.
          Part(2 * RECEIVED_BYTES, (_CLIENTS,), (Fact.NO_SOCKET_BOUND, Fact.THROTTLE_ACTS))),
         alternative=_LOOKUP_OR_RELAY),
    # Bounds in sum: a few relays can fill them, so they stand beside the lookup connections of all others. A pool is
    # passed by at most one read of each thread.
    Line(nodes.RELAY_POOL.label, "relay pool", _POOL.name,
         (Part(MIB, (_POOL,), (Fact.RELAY_POOL,)),
          Part(1, (Derived.RELAY_READERS, Config.relay_buffer_bytes), (Fact.RELAY_POOL,)))),
    Line(nodes.RELAY_SOCKETS.label, "kernel memory of relayed sockets", _SOCKETS.name,
         (Part(MIB, (_SOCKETS,), (Fact.SOCKET_BOUND,)),)),
    Line("ended_connections", "ended connections, unsent bytes", _CLIENTS.name,
         (Part(LEAST_BYTES), Part(A_CONNECTION_BYTES, (_CLIENTS,)))),
    Line("forwarded_credentials", "credentials to forward", _CLIENTS.name,
         (Part(FREE_BYTES, (_CLIENTS,), (Fact.FORWARDS,)), Part(MAX_AUTH_DATA_BYTES, (_BROKERS,), (Fact.FORWARDS,)),
          Part(MIB // HANDSHAKE_PART, (_DIRECT,), (Fact.FORWARDS,)),
          Part(HANDSHAKE_BYTES, when=(Fact.FORWARDS, _NO_DIRECT)))),
    Line("broker_connections", "broker connections", _BROKERS.name,
         (Part(BROKER_CONNECTION_BYTES, (_BROKERS,)),
          Part(TLS_BROKER_BYTES, (_BROKERS,), (_BROKER_TLS,)),
          Part(RECEIVE_TIMES, (_BROKERS, Config.client_socket_send_buffer_bytes)),
          Part(RECEIVE_TIMES * BROKER_RECEIVE_BYTES // BROKER_RECEIVE_TIMES, (_BROKERS,),
               (Is(Config.client_socket_send_buffer_bytes, "0"),))), Load.STORM),
    # Counted only if the log is on: nothing is allocated before.
    Line("relay_log", "relayed commands that are shown", Config.proxy_log_level.name,
         (Part(NAMES_BYTES, when=(Is(Config.proxy_log_level, "0", holds=False),)),
          Part(TAPPED_BYTES, (_CLIENTS,), (Is(Config.proxy_log_level, "0", holds=False),)))),
)  # fmt: skip
_REQUEST_LINES: Final = (
    # The largest requests are the largest commands decoded, and the bytes of all commands have a limit: the smaller
    # of two bounds.
    Line("requests", "requests under way", _REQUESTS.name,
         (Part(LARGEST_REQUEST_BYTES, (_REQUESTS,), (Fact.NO_COMMAND_BYTES,)),
          Part(REQUEST_BYTES, (_REQUESTS,), (Fact.COMMAND_BYTES,)),
          Part(COPIES_WITH_RESERVE * MIB, (nodes.COMMANDS.key(),), (Fact.COMMAND_BYTES,)),
          Part(RECORD_BYTES, (_REQUESTS,), (_EVENT_LOG,))),
         Load.STORM),
    Line("waiting_lists", "topic lists that wait for their turn", _REQUESTS.name,
         (Part(WAITING_LIST_BYTES // CROWDED_SHARE, (_REQUESTS,)),
          Part(FEW_WAITING * WAITING_LIST_BYTES, (_CLIENTS,)),
          Part(WAITING_RECORD_BYTES // CROWDED_SHARE, (_REQUESTS,), (_EVENT_LOG,)),
          Part(FEW_WAITING * WAITING_RECORD_BYTES, (_CLIENTS,), (_EVENT_LOG,))), Load.STORM),
    Line("fairness_debts", "keys that owe", Config.topic_list_fairness.name,
         (Part(SHARED_SEMAPHORES * MOST_DEBTORS * DEBTOR_BYTES,
               when=(Is(Config.topic_list_fairness, "fifo", holds=False),)),)),
)  # fmt: skip
_WEB_LINES: Final = (
    Line("web_connections", "connections of the web ports", _WEB_CONNECTIONS.name,
         (Part(WEB_CONNECTION_BYTES + WEB_HEADS_BYTES, (_WEB_CONNECTIONS,), (_WEB_PORT,)),
          Part(2, (_WEB_CONNECTIONS, Config.http_max_request_header_size), (_WEB_PORT,)),
          Part(PAGE_KERNEL_BUFFERS + WEB_READ_BUFFERS, (_WEB_CONNECTIONS, _WEB_BUFFER), (_WEB_PORT,)),
          Part(WEB_KERNEL_BUFFERS - PAGE_KERNEL_BUFFERS, (_WEB_CONNECTIONS, _WEB_BUFFER), _PASSES_ON))),
    Line("metrics_connections", "connections of metricsPort", Config.metrics_port.name,
         (Part(METRICS_CONNECTIONS * (WEB_CONNECTION_BYTES + WEB_HEADS_BYTES), when=(_METRICS_PORT,)),
          Part(2 * METRICS_CONNECTIONS, (Config.http_max_request_header_size,), (_METRICS_PORT,)),
          Part((PAGE_KERNEL_BUFFERS + WEB_READ_BUFFERS) * METRICS_CONNECTIONS, (_WEB_BUFFER,), (_METRICS_PORT,)))),
    Line("web_tls", "TLS of the web ports", _WEB_CONNECTIONS.name,
         (Part(TLS_CLIENT_BYTES, (_WEB_CONNECTIONS,), (_WEB_TLS,)),
          Part(CLIENT_CHAIN_BYTES, (_WEB_CONNECTIONS,), (_WEB_TLS, _ASKS_CERTIFICATES)))),
    # The header of the answer, as read and as passed on; a window in each direction, but for the read that the line of
    # the client's connection has, and kernel buffers.
    Line("web_requests", "requests passed on", _WEB_REQUESTS.name,
         (Part(WEB_REQUEST_BYTES, (_WEB_REQUESTS,), _PASSES_ON),
          Part(2, (_WEB_REQUESTS, Config.http_max_response_header_size), _PASSES_ON),
          Part(WEB_REQUEST_BUFFERS, (_WEB_REQUESTS, _WEB_BUFFER), _PASSES_ON))),
    Line("web_requests_tls", "TLS of requests passed on", _WEB_REQUESTS.name,
         (Part(LOOP_TLS_BYTES, (_WEB_REQUESTS,), (*_PASSES_ON, _BROKER_TLS)),)),
    # An open tunnel is as large as a request.
    Line("web_sockets", "open WebSockets", _WEB_CONNECTIONS.name,
         (Part(WEB_REQUEST_BYTES // TUNNELS_PART, (_WEB_CONNECTIONS,), _PASSES_ON),
          Part(WEB_REQUEST_BUFFERS // TUNNELS_PART, (_WEB_CONNECTIONS, _WEB_BUFFER), _PASSES_ON))),
    Line("web_sockets_tls", "TLS of open WebSockets", _WEB_CONNECTIONS.name,
         (Part(LOOP_TLS_BYTES // TUNNELS_PART, (_WEB_CONNECTIONS,), (*_PASSES_ON, _BROKER_TLS)),)),
)  # fmt: skip
_ADMIN_LINES: Final = (
    Line("admin_clients", "askers of the admin API", Config.admin_api_address.name,
         (Part(MOST_ADMIN_CLIENTS * ADMIN_CLIENT_BYTES, when=(Is(Config.control_socket_path, NO_SOCKET, holds=False),)),
          Part(MOST_ADMIN_CLIENTS * ADMIN_CLIENT_BYTES, when=(Given((Config.admin_api_address,)),)))),
)  # fmt: skip
_WATCHES_BROKERS: Final = Is(Config.overload_signals, "proxy", holds=False)
_OVERLOAD_LINES: Final = (
    Line("throttle_topics", "topics of the adaptive throttle", Config.adaptive_publisher_throttling_enabled.name,
         (Part(MOST_TOPICS * TOPIC_BYTES, when=(_ADAPTIVE,)),)),
    Line("paused_connections", "paused connections", Config.overload_throttle_enabled.name,
         (Part(PAUSED_BYTES, (_CLIENTS,), (_THRESHOLD,)),)),
    # With both throttles enabled brokers are asked once all the same; the second part is slack.
    Line("broker_statistics", "statistics of brokers", Config.overload_signals.name,
         (Part(ANSWER_BYTES, when=(_THRESHOLD, _WATCHES_BROKERS)),
          Part(ANSWER_BYTES, when=(_ADAPTIVE, _WATCHES_BROKERS)))),
)  # fmt: skip
_EVENT_LOG_LINES: Final = (
    Line("events_files", "event log, files", Config.event_log_directory.name,
         (Part(MIB, (Config.event_log_buffer_mb,), (_FILES,)), Part(SINK_BLOCKS * BLOCK_BYTES, when=(_FILES,))),
         Load.STORM),
    Line("events_topic", "event log, topic", Config.event_log_topic.name,
         (Part(MIB, (Config.event_log_buffer_mb,), (_TOPIC,)),
          Part(PULSAR_CLIENT_BYTES + TOPIC_SINK_BLOCKS * BLOCK_BYTES, when=(_TOPIC,))), Load.STORM),
    Line("events_names", "event log, names", "",
         (Part(EVENT_NAMES_BYTES, when=(_EVENT_LOG,)),), Load.STORM),
)  # fmt: skip
LINES: Final[tuple[Line, ...]] = (
    *_PROCESS_LINES,
    *_TOPIC_LIST_LINES,
    *_CONNECTION_LINES,
    *_REQUEST_LINES,
    *_WEB_LINES,
    *_ADMIN_LINES,
    *_OVERLOAD_LINES,
    *_EVENT_LOG_LINES,
)
_ALTERNATIVES: Final = {line.owner: line.alternative for line in LINES if line.alternative}


class KernelLine(NamedTuple):
    """Memory that only the kernel bounds, while `key` is 0 or -1: `sockets` for each client.

    `throttled`: a throttle that acts bounds it, too. `receives`: the bound is the upper end of
    `net.ipv4.tcp_rmem`, else that of `tcp_wmem`.
    """

    label: str
    owner: str
    key: Key[int]
    sockets: int
    receives: bool
    throttled: bool = False


# Shown apart from the sum: a limit that nobody set would make every sum meaningless.
KERNEL_LINES: Final = (
    KernelLine("relay_unsent", "unsent bytes of relays", Config.relay_unsent_bytes, 2, receives=False),
    KernelLine("relay_received_from_brokers", "received bytes of relays, from brokers",
               _SOCKETS, 1, receives=True),
    KernelLine("relay_received_from_clients", "received bytes of relays, from clients",
               _SOCKETS, 1, receives=True, throttled=True),
)  # fmt: skip


def worst_case(config: Config, *, exports: bool = False, load: Load = Load.WORST) -> Iterator[BudgetLine]:
    """Yield the lines that a load can fill; a limit of 0 (no limit) counts as 0, and `config.rules` warns about it.

    `exports`: metrics go to an OpenTelemetry collector, as environment variables decide.
    """
    pool, bound = config.relay_pool_bytes > 0, config.relay_socket_bytes > 0
    send, commands = config.send_memory_bytes > 0, _bounds_commands(config)
    facts = {
        Fact.EXPORTS: exports, Fact.FORWARDS: config.forwards_credentials, Fact.WEB_TARGETS: WebTargets.of(config).any,
        Fact.RELAY_POOL: pool, Fact.NO_RELAY_POOL: not pool,
        Fact.SOCKET_BOUND: bound, Fact.NO_SOCKET_BOUND: not bound,
        Fact.SEND_MEMORY: send, Fact.NO_SEND_MEMORY: not send,
        Fact.COMMAND_BYTES: commands, Fact.NO_COMMAND_BYTES: not commands, Fact.THROTTLE_ACTS: config.throttle_acts,
    }  # fmt: skip
    yield from _counted((line for line in LINES if line.load <= load), config, facts)


def _bounds_commands(config: Config) -> bool:
    """Return whether the limit for the bytes of commands bounds requests more than their number does."""
    by_number = (LARGEST_REQUEST_BYTES - REQUEST_BYTES) * config.max_concurrent_lookup_requests
    return 0 < COPIES_WITH_RESERVE * config.command_bytes_limit < by_number


def kernels_choice(config: Config, buffers: TcpBuffers) -> Iterator[BudgetLine]:
    """Yield what only the kernel bounds under a configuration; no part of the sum. Nothing under a bound in sum."""
    if config.relay_socket_bytes:
        return
    for label, owner, key, sockets, receives, throttled in KERNEL_LINES:
        if config.value(key) <= 0 and not (throttled and config.throttle_acts):
            most = buffers.receive if receives else buffers.send
            yield BudgetLine(label, owner, key.name, sockets * config.max_concurrent_inbound_connections * most)


def event_log(config: Config) -> Iterator[BudgetLine]:
    """Yield the lines of the event log: a line for each sink, and a line for the names that both sinks remember."""
    yield from _counted(_EVENT_LOG_LINES, config, {})


def lists_on_disk(config: Config) -> int:
    """Return the process memory for lists on their way to and from the disk; 0 without a directory."""
    return sum(line.limit_bytes for line in _counted((_LISTS_ON_DISK,), config, {}))


def _counted(lines: Iterable[Line], config: Config, facts: Mapping[Fact, bool]) -> Iterator[BudgetLine]:
    for line in lines:
        counted = [part for part in line.parts if all(_holds(each, config, facts) for each in part.when)]
        limit = sum(_part_bytes(part, config) for part in counted) // line.divided_by
        # A line without a condition is listed even if its limit is 0.
        if limit or not all(part.when for part in line.parts):
            yield BudgetLine(line.label, line.owner, _first_key(line, counted), limit)


def _first_key(line: Line, counted: Iterable[Part]) -> str:
    """Return the key to change first, which is another where a sum bounds all buffers and not each."""
    names = [factor.name for part in counted for factor in part.times if isinstance(factor, Key)]
    return line.key if not names or not line.key or line.key in names else names[0]


def _part_bytes(part: Part, config: Config) -> int:
    return prod((_factor(factor, config) for factor in part.times), start=part.each)


def _factor(factor: Key[int] | Derived, config: Config) -> int:
    if factor is Derived.ANSWER_LIMIT:
        return config.topic_list_answer_limit_bytes
    if factor is Derived.RELAY_READERS:
        return config.relay_threads_at_most
    return int(config.value(factor))


def _holds(condition: Condition, config: Config, facts: Mapping[Fact, bool]) -> bool:
    match condition:
        case Fact():
            return facts[condition]
        case Given(keys):
            return any(config.value(key) not in (None, "") for key in keys)
        case Is(key, word, holds):
            return (key.kind.write(config.value(key)) == word) is holds


def worst_case_parts(config: Config, *, exports: bool = False, load: Load = Load.WORST) -> dict[str, int]:
    """Return the limit of each owner, bytes."""
    return {line.owner: line.limit_bytes for line in worst_case(config, exports=exports, load=load)}


def worst_case_bytes(config: Config, *, exports: bool = False, load: Load = Load.WORST) -> int:
    """Return the sum of all lines that a load can fill, bytes."""
    return total_bytes(worst_case_parts(config, exports=exports, load=load))


def total_bytes(parts: Mapping[str, int]) -> int:
    """Return the sum of all parts, bytes; of alternatives only the largest counts."""
    return sum(summands(parts).values())


def summands(parts: Mapping[str, int]) -> dict[str, int]:
    """Return the parts that count in the sum: of alternatives only the largest."""
    largest: dict[str, str] = {}
    for owner, limit in parts.items():
        if (alternative := _ALTERNATIVES.get(owner)) and limit > parts.get(largest.get(alternative, ""), -1):
            largest[alternative] = owner
    counted = set(largest.values())
    return {owner: limit for owner, limit in parts.items() if owner not in _ALTERNATIVES or owner in counted}
