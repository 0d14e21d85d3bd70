"""Declare each limit at which somebody waits, is refused or is ended: its size, the turns, who waits and who goes.

Rule: a `Node` is data, and its size is a key, or the constant of the code that keeps it. The memory budget multiplies
these sizes (`budget.py`); the admin API, the page and the metrics read those that are semaphores (`Proxy.nodes`); the
table "What bounds what" of docs/architecture.md has a row for each (`python -m scripts.generate`).
"""

from math import ceil
from typing import Any, Final, NamedTuple

from proxy.auth.issuer_sockets import MOST_WAITING as MOST_AT_AN_ISSUER
from proxy.brokers.pool import CONNECTIONS_A_KEY
from proxy.brokers.resolver import NAMES_AT_ONCE
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.clients.services import MOST_OUTSTANDING
from proxy.clients.services import SHARE_PART as FRAMES_PART
from proxy.config.config import Config
from proxy.config.keys.key import Key
from proxy.config.values import HANDSHAKE_PART
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.net.away import MOST_BODIES
from proxy.net.dial_places import MOST_DIALS
from proxy.net.ended_sockets import MOST_SOCKETS
from proxy.net.spill.moves import MOVES_AT_ONCE
from proxy.net.spill.read_back import READ_BACK_BYTES
from proxy.net.spill.space import MOST_FILES
from proxy.relay.watch_limits import SHARE_PART as WATCHES_PART
from proxy.requests.broker_turns import QUESTIONS_AT_A_BROKER
from proxy.requests.places import KEPT_OF as LOOKUPS_KEPT
from proxy.requests.reader_shares import AWAKE_PART
from proxy.requests.topic_lists.broker_queues import ANSWERS_HEAP_PART, ESTIMATES_HEAP_PART, UNPROVEN_HEAP_PART
from proxy.web.admin.listener import MOST_CONNECTIONS as MOST_ADMIN_CLIENTS
from proxy.web.forward.places import LEFT_OF, LEFT_OF_LISTS
from proxy.web.forward.replay_copies import SHARE as COPIES_PART
from proxy.web.forward.settings import METRICS_CONNECTIONS, MOST_CONNECTIONS_A_SERVER, TUNNELS_PART

_MIB: Final = 1024 * 1024
ITERATION_MILLIS: Final = round(1000 * ITERATION_SECONDS)


class PartOf(NamedTuple):
    """A part of another node's limit, or of a percentage of it; 100 percent are no limit."""

    node: "Node"
    part: float
    percent: Key[int] | None = None


class Node(NamedTuple):
    """A limit; `name` is the one that the admin API shows where `Proxy.nodes` has it.

    `turns`: what takes turns, the outermost first; "": the order of coming. `rule`: who waits, who goes, who is
    refused. `label`: the line of the memory budget that has these bytes and no others. `lists`: lists wait here for
    memory, and the page shows them.
    """

    name: str
    limit: Key[Any] | PartOf | int
    unit: str
    turns: str
    rule: str
    label: str = ""
    lists: bool = False

    # Fields that may be keys are not read by their names: to a type checker they would be values of these keys.
    def key(self) -> Key[int]:
        """Return the key that is the limit, of a node that has one."""
        key = self[1]
        assert isinstance(key, Key)
        return key

    def size(self, config: Config) -> int:
        """Return the limit in units; 0 is no limit."""
        match self[1]:
            case PartOf() as limit:
                whole, part, percent = limit
                of = whole.size(config)
                if percent is not None:
                    part *= config.value(percent) % 100 / 100
                return ceil(of * part)
            case Key() as key:
                return max(0, int(config.value(key))) * (_MIB if key.unit == "MiB" else 1)
            case number:
                return number


_NETWORK: Final = "IPv6 site, network"
_LISTS: Final = "as `topicListFairness` says"

CLIENTS: Final = Node(
    "clients", Config.max_concurrent_inbound_connections, "connections", _NETWORK,
    "a newcomer ends who is silent or idle, else who works, of the network with most; or is refused",
)  # fmt: skip
LOOKUPS: Final = Node(
    "lookups", Config.max_concurrent_lookup_requests, "requests", "",
    "refused; while a quarter is left, connections with many requests are not read",
)  # fmt: skip
COMMANDS: Final = Node(
    "memory of commands", Config.max_concurrent_lookup_request_mb, "bytes", "connections with few requests, network",
    "clients wait unread; beside it is a reserve for those with few requests",
)  # fmt: skip
HEAP: Final = Node(
    "heap", Config.max_topic_list_in_flight_heap_mem_size_mb, "bytes", _LISTS,
    "growth first, then newcomers; refused when the queue is full or the time is over", "decoded_lists", lists=True,
)  # fmt: skip
ESTIMATES: Final = Node(
    "heap on ...", PartOf(HEAP, 1 / ESTIMATES_HEAP_PART), "bytes", _LISTS, "questions to this broker wait", lists=True,
)  # fmt: skip
ANSWERS: Final = Node(
    "answers of ...", PartOf(HEAP, 1 / ANSWERS_HEAP_PART), "bytes", _LISTS,
    "the answers of one broker of several wait unread", lists=True,
)  # fmt: skip
UNPROVEN: Final = Node(
    "questions of unproven readers to ...", PartOf(HEAP, 1 / UNPROVEN_HEAP_PART), "bytes", _LISTS,
    "questions wait before they have any memory",
)  # fmt: skip
QUESTIONS: Final = Node(
    "questions to ...", Config.topic_list_max_outstanding_per_broker, "questions", _LISTS, "lists wait",
)  # fmt: skip
DIRECT: Final = Node(
    "direct", Config.max_topic_list_in_flight_direct_mem_size_mb, "bytes", _LISTS,
    "growth first, then newcomers; refused as for heap; who holds it and does not read is ended", "encoded_lists",
    lists=True,
)  # fmt: skip
HANDSHAKES: Final = Node(
    "handshake", PartOf(DIRECT, 1 / HANDSHAKE_PART), "bytes", _NETWORK,
    "large frames before CONNECTED, beside it, wait unread; who stops sending meanwhile is refused", "handshake_frames",
)  # fmt: skip
SILENT: Final = Node(
    "direct for unproven readers",
    PartOf(DIRECT, 1 - 1 / AWAKE_PART, Config.topic_list_unproven_readers_memory_percent), "bytes",
    f"network, or {_LISTS}", "lists wait, and their clients get a PING", lists=True,
)  # fmt: skip
AWAKE: Final = Node(
    "direct for readers that answer a PING",
    PartOf(DIRECT, 1 / AWAKE_PART, Config.topic_list_unproven_readers_memory_percent), "bytes",
    f"network, or {_LISTS}", "lists wait; who stands still loses its share; an eighth is for networks without",
    lists=True,
)  # fmt: skip
FRAMES: Final = Node(
    "direct for large frames", PartOf(DIRECT, 1 / FRAMES_PART), "bytes", _NETWORK,
    "large frames after CONNECTED, beside it, wait unread; who stops sending meanwhile is refused", "large_questions",
)  # fmt: skip
SEND_BUFFERS: Final = Node(
    "large send buffers", Config.client_socket_send_memory_mb, "bytes", "",
    "resting buffers shrink; answers wait, and after 50 ms without any leave by small buffers", "large_send_buffers",
)  # fmt: skip
BROKERS: Final = Node(
    "connections to brokers", Config.broker_connections_total, "connections", "",
    "each broker, principal and purpose waits once; an idle connection ends for it",
)  # fmt: skip
RELAY_POOL: Final = Node(
    "relay pool", Config.relay_memory_pool_mb, "bytes", "", "relays wait unread, and are read once each", "relay_pool"
)
RELAY_SOCKETS: Final = Node(
    "kernel memory of relays", Config.relay_socket_memory_mb, "bytes", _NETWORK,
    "windows narrow; then relays to strangers, then those that stand still end, of who has most", "relay_sockets",
)  # fmt: skip
WEB_CONNECTIONS: Final = Node(
    "web connections", Config.max_http_server_connections, "connections", _NETWORK,
    "a newcomer ends who rests, else who works, of the host with most; or is closed; some are for own pages",
)  # fmt: skip
WEB_REQUESTS: Final = Node(
    "http requests", Config.max_concurrent_http_requests, "requests", "principal, or IPv6 site, network",
    "wait 5 s; slow ones end for others, then long ones of who has more than its share",
)  # fmt: skip
WEB_SERVICE: Final = Node(
    "connections to ...:web", MOST_CONNECTIONS_A_SERVER, "connections", WEB_REQUESTS.turns, "as http requests",
)  # fmt: skip

NODES: Final = (
    CLIENTS,
    Node("clients of an address", Config.max_concurrent_inbound_connections_per_ip, "connections", "", "refused"),
    Node("TLS handshakes", Config.max_concurrent_tls_handshakes, "handshakes", _NETWORK,
         "wait with their ClientHello unread; who is silent for a second gives its place to others"),
    HANDSHAKES,
    Node("kept credentials", PartOf(HANDSHAKES, 1), "bytes", _NETWORK,
         "refused; an eighth is for networks without"),
    Node("passwords", Config.max_concurrent_authentications, "checks", f"{_NETWORK}, user",
         "who guessed wrong waits behind; of too many the newest of who has most is refused"),
    Node("checks of signatures", ITERATION_MILLIS, "ms of an iteration of the loop", _NETWORK, "wait"),
    Node("checks that wait for an issuer", MOST_AT_AN_ISSUER, "checks", "",
         "for its keys, of each issuer; others fail as busy; their tokens have a bound, too"),
    Node("work of the loop", ITERATION_MILLIS, "ms of an iteration of the loop",
         "clients' frames by network and connection, answers of brokers, all else", "waits unread"),
    Node("outstanding requests of a client", MOST_OUTSTANDING, "requests", "", "it is not read"),
    LOOKUPS,
    COMMANDS,
    Node("questions at a broker", QUESTIONS_AT_A_BROKER, "requests", f"{_NETWORK}, connection",
         "lookups wait; beside it is a reserve for connections with one question"),
    Node("lists", PartOf(LOOKUPS, 1 - 1 / LOOKUPS_KEPT), "requests", "role", "wait as they came"),
    Node("lists of a client", LISTS_AT_ONCE, "requests", "", "wait as they came; those on disk do not count"),
    QUESTIONS,
    HEAP,
    ESTIMATES,
    ANSWERS,
    UNPROVEN,
    DIRECT,
    SILENT,
    AWAKE,
    FRAMES,
    Node("watch frames", PartOf(DIRECT, 1 / WATCHES_PART), "bytes", "",
         "wait as others for direct, 1 s at most, then pass without memory"),
    Node("copies for redirects", PartOf(DIRECT, 1 / COPIES_PART), "bytes", "",
         "the oldest are dropped when others wait for direct"),
    SEND_BUFFERS,
    Node("bodies written by threads", MOST_BODIES, "bodies", "", "others are written by the loop"),
    Node("lists on disk", Config.topic_list_spill_max_mb, "bytes", "", "lists stay in memory; a key has its cap"),
    Node("files on disk", MOST_FILES, "files", "", "lists stay in memory; a key has at most thrice what is left"),
    Node("moves to disk", MOVES_AT_ONCE, "lists", "", "lists stay in memory meanwhile"),
    Node("lists read back from disk", READ_BACK_BYTES, "bytes", "",
         "reads wait as they came; a client whose read takes 20 s is closed"),
    Node("ended connections", MOST_SOCKETS, "sockets", "", "who takes least is reset; their bytes have a bound, too"),
    BROKERS,
    Node("connections of a broker, principal, purpose", CONNECTIONS_A_KEY, "connections", "", "questions share them"),
    Node("dials", MOST_DIALS, "dials", _NETWORK,
         "to hosts that clients make up; the oldest of who has more than its share end for others"),
    Node("names", NAMES_AT_ONCE, "queries", _NETWORK,
         "a site has all but one; of too many that wait the newest of who has most leaves"),
    RELAY_POOL,
    RELAY_SOCKETS,
    WEB_CONNECTIONS,
    Node("WebSockets", PartOf(WEB_CONNECTIONS, 1 / TUNNELS_PART), "connections", "principal, or network",
         "the longest idle one of who has most ends for a newcomer"),
    WEB_REQUESTS,
    Node("http requests a second", Config.http_requests_max_per_second, "requests", WEB_REQUESTS.turns,
         "refused; a reserve is for keys below their share"),
    Node("uploads of http requests", PartOf(WEB_REQUESTS, 1 - 1 / LEFT_OF), "requests", WEB_REQUESTS.turns,
         "as http requests, in a line of their own"),
    WEB_SERVICE,
    Node("uploads of connections to ...:web", PartOf(WEB_SERVICE, 1 - 1 / LEFT_OF), "connections", WEB_REQUESTS.turns,
         "as http requests, in a line of their own"),
    Node("lists of connections to ...:web", PartOf(WEB_SERVICE, 1 - 1 / LEFT_OF_LISTS), "connections",
         WEB_REQUESTS.turns, "the same, as long as for direct; an eighth is for keys without"),
    Node("http lists", QUESTIONS.key(), "questions", SILENT.turns, "wait; an eighth is for networks without"),
    Node("connections of `metricsPort`", METRICS_CONNECTIONS, "connections", _NETWORK, "as web connections"),
    Node("askers of the admin API", MOST_ADMIN_CLIENTS, "connections", _NETWORK,
         "for each of its two doors; the oldest without a whole request ends for a newcomer, else 503"),
    Node("events in memory", Config.event_log_buffer_mb, "bytes", "", "for each sink; dropped, and counted"),
)  # fmt: skip
