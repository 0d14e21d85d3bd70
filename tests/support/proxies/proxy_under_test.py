"""Own a whole proxy on the test's loop, with real sockets, and the check that nothing of a test stays behind in it.

Rule: every `staged` block ends on zero: sessions, permits, queue places, outstanding questions, watched sockets, tasks
and file descriptors are what they were. A stage must not know what a test does in between.
"""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

import proxy
from limiter.semaphore import AsyncSemaphore
from protocol.command_type import CommandType
from proxy.app.proxy import Proxy
from proxy.app.reload import apply
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.pool import PoolLimits
from proxy.clients.connection import ClientConnection
from proxy.config.config import Config
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics, TopicStore
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.log_lines import LogLines
from tests.support.patience import patient_clocks
from tests.support.proxies.books import books_of
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.events import CheckedSink

MIB: Final = 1024 * 1024
_PROXY_SOURCES: Final = os.path.dirname(proxy.__file__) + os.sep
# 7,000 names of 100 bytes: one such list fits into a limit of 1 MiB, two do not.
TOPICS, NAME_BYTES = 7_000, 100
LIST_BYTES: Final = TOPICS * (NAME_BYTES + 2)
# What follows the names of a list: filtered, hash, changed.
FLAGS_BYTES: Final = 2 + 10 + 2
SLOW_READER_RCVBUF: Final = 4096
DEFAULTS: Final = {
    "servicePort": "0",
    "webServicePort": "0",
    "bindAddress": "127.0.0.1",
    "clusterName": "test",
    "brokerProxyAllowedTargetPorts": "*",
    # Little stays in the kernel, so that a body of some hundred KB is still there when a test looks for it.
    "clientSocketSendBufferBytes": "16384",
    "shutdownDrainMillis": "200",
    "keepAliveIntervalSeconds": "3600",
    # A peer that does not read is the test's doing: a busy machine takes longer than the kernel waits for one.
    "tcpUserTimeoutMillis": "0",
    "controlSocketPath": "none",
    # Tests count the connections that brokers accept.
    "brokerIdleProbeIntervalMillis": "0",
    # One list fills these limits: the tests of waits say themselves who reads and who does not.
    "topicListUnprovenReadersMemoryPercent": "100",
}


def config_for(broker_url: str, **keys: object) -> Config:
    """Load a configuration as the command line does; routes of the reverse proxy have no flags, but variables."""
    given = {key: str(value) for key, value in keys.items()}
    routes = {f"PULSAR_PREFIX_{key}": given.pop(key) for key in list(given) if key.startswith("httpReverseProxy.")}
    clocks = {name: str(millis) for name, millis in patient_clocks().items()}
    return Config.load(None, routes, {**DEFAULTS, **clocks, "brokerServiceURL": broker_url, **given})


def namespace(number: int) -> str:
    """Name a namespace of the default store."""
    return f"demo/ns-{number:02}"


TOPIC: Final = f"persistent://{namespace(0)}/topic"


@dataclass
class Stage:
    """A running proxy, the broker behind it, and the clients a test has opened."""

    proxy: Proxy
    broker: EmbeddedBroker
    events: CheckedSink
    clients: list[AsyncClient] = field(default_factory=list)
    expected_internal_errors: dict[str, int] = field(default_factory=dict)
    # What the log has of refused clients, which are told less.
    details: list[str] = field(default_factory=list)

    async def client(self, rcvbuf: int | None = None, port: int | None = None, source: str = LOOPBACK) -> AsyncClient:
        """Open a connection on which nothing was sent."""
        client = await AsyncClient.open(self.proxy.port if port is None else port, rcvbuf, source)
        self.clients.append(client)
        return client

    async def connected(self, rcvbuf: int | None = None) -> AsyncClient:
        """Open a connection in lookup mode."""
        client = await self.client(rcvbuf)
        await client.connect()
        return client

    async def relayed(self, rcvbuf: int | None = None) -> AsyncClient:
        """Open a connection in direct mode to the embedded broker."""
        client = await self.client(rcvbuf)
        await client.connect(target=f"127.0.0.1:{self.broker.port}")
        return client

    def change_pool(self, **limits: Any) -> None:
        """Give the pool of broker connections other limits than the proxy has."""
        self.proxy.broker_side.pool.apply(replace(PoolLimits.of(self.proxy.config), **limits))

    def give_up_after(self, seconds: float, **limits: Any) -> None:
        """Let a broker leave a question unanswered for so long."""
        clocks = replace(BrokerClocks.of(self.proxy.config), answer_timeout_seconds=seconds)
        self.change_pool(clocks=clocks, **limits)

    def hear_everything(self) -> None:
        """Let clients send what nobody answers at any rate: a flood is heard without a pause."""
        services = self.proxy.services
        services.limits = replace(services.limits, unanswered_per_second=1_000_000_000)

    @property
    def heap(self) -> AsyncSemaphore:
        return self.proxy.memory.limiter.heap

    @property
    def direct(self) -> AsyncSemaphore:
        return self.proxy.memory.limiter.direct

    @property
    def frames(self) -> AsyncSemaphore:
        return self.proxy.services.frames

    @property
    def handshakes(self) -> AsyncSemaphore:
        return self.proxy.services.handshakes

    @property
    def unproven(self) -> AsyncSemaphore:
        return self.proxy.memory.unproven.share

    @property
    def lookups(self) -> AsyncSemaphore:
        return self.proxy.services.requests.lookups.concurrency

    @property
    def outstanding(self) -> int:
        return self.proxy.broker_side.pool.outstanding

    @property
    def sessions(self) -> list[Any]:
        """Give the proxy's sides of all clients, in the order of their coming."""
        registry = self.proxy.sessions.registry
        return [entry.member for number in registry.ids() if (entry := registry.find(number))]

    def change(self, **keys: object) -> None:
        """Put a configuration in force that differs in `keys`: a short time begins to count when a test is ready."""
        newer = self.proxy.config.replace({name: str(value) for name, value in keys.items()})
        apply(self.proxy, newer, open_log("error", "json", io.BytesIO()))

    @contextmanager
    def changed(self, **keys: object) -> Iterator[None]:
        """Have a configuration that differs in `keys` for what happens in the block."""
        before = self.proxy.config
        self.change(**keys)
        try:
            yield
        finally:
            apply(self.proxy, before, open_log("error", "json", io.BytesIO()))

    def caused(self, cause: str) -> int:
        """Count the connections that ended for `cause`."""
        return counted(self.proxy.counters, "disconnects", cause)

    def outcome(self, outcome: str) -> int:
        """Count the topic-list requests that ended so."""
        return counted(self.proxy.counters, "lists_answers", outcome)

    def session_of(self, client: AsyncClient) -> ClientConnection:
        """Find the proxy's side of a client in lookup mode."""
        name = "{}:{}".format(*client.sock.getsockname())
        found = [session for session in self.sessions if getattr(session, "name", "") == name]
        assert len(found) == 1, f"expected one session {name}, got {len(found)}"
        assert isinstance(found[0], ClientConnection)
        return found[0]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for `condition`; a failure says what the proxy's books were."""
        try:
            await eventually(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; books: {self.books()}") from None

    def books(self) -> dict[str, int]:
        """Give everything that must be zero when no client is there."""
        return books_of(self.proxy)

    def settled(self) -> bool:
        """Tell whether nothing is left of any client."""
        return not any(self.books().values())

    async def settle(self) -> None:
        """Let all clients leave and wait until nothing is left of them."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        await self.until(self.settled, "nothing left of any client")
        if self.proxy.event_log is None:
            await self._events_are_all_there()
        assert counted_by(self.proxy.counters, "internal_errors") == self.expected_internal_errors

    async def _events_are_all_there(self) -> None:
        counters = self.proxy.counters
        try:
            await eventually(lambda: not self.events.unlike(counters), "events of all that was counted")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.events.unlike(counters)}") from None


@asynccontextmanager
async def staged(
    store: TopicStore | None = None,
    broker_port: int | None = None,
    # In place of an Authenticator; as with broker_tls.
    role_finder: Any = None,
    # An ssl.SSLContext; its type would be asked of every key that a dictionary brings.
    broker_tls: Any = None,
    # A CheckedSink that keeps what it gets.
    events: Any = None,
    **keys: object,
) -> AsyncIterator[Stage]:
    """Run an embedded broker and a proxy in front of it (or of `broker_port`), and check the end of both.

    Every proxy here has an event log, whose events are judged as they come and compared with its counters at the end.
    """
    before = open_files()
    sink = CheckedSink() if events is None else events
    # Otherwise the events go where the keys say.
    given = None if keys.keys() & {"eventLogDirectory", "eventLogTopic"} else sink.put
    async with AsyncExitStack() as stack:
        topics = GeneratedTopics(20, TOPICS, NAME_BYTES) if store is None else store
        broker = EmbeddedBroker(topics, tls=broker_tls)
        await stack.enter_async_context(broker)
        port = broker.port if broker_port is None else broker_port
        tls_wanted = "tlsEnabledWithBroker" in DEFAULTS | keys
        with_tls = {"brokerServiceURLTLS": f"pulsar+ssl://127.0.0.1:{port}"} if tls_wanted else {}
        proxy = Proxy(config_for(f"pulsar://127.0.0.1:{port}", **{**with_tls, **keys}), _log(), role_finder, given)
        await proxy.start()
        stage = Stage(proxy, broker, sink)
        _keep_details(stage)
        try:
            yield stage
            await stage.settle()
        finally:
            for client in stage.clients:
                client.close()
            await proxy.stop()
    await eventually(lambda: not tasks_of_the_proxy(), f"no task left, got {tasks_of_the_proxy()}")
    await eventually(lambda: len(open_files()) <= len(before), f"{before} open, got {open_files()}")


def _keep_details(stage: Stage) -> None:
    """Keep every detail: the log itself has one line a second for each cause."""
    sessions = stage.proxy.sessions
    log_end = sessions.log_end

    def kept(cause: DisconnectCause, client: str, detail: str) -> None:
        if detail:
            stage.details.append(detail)
        log_end(cause, client, detail)

    sessions.log_end = kept  # type: ignore[method-assign]


def tasks_of_the_proxy() -> list[str]:
    coroutines = (task.get_coro() for task in asyncio.all_tasks())
    code = [getattr(coroutine, "cr_code", None) for coroutine in coroutines]
    return [made.co_qualname for made in code if made is not None and made.co_filename.startswith(_PROXY_SOURCES)]


def open_files() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    # libuv opens /dev/null once, as a reserve for the day when descriptors run out.
    return {number: target for number, target in found.items() if target != "/dev/null"}


def _log() -> Any:
    return open_log("error", "json")


def kept_log(monkeypatch: pytest.MonkeyPatch, level: str = "info") -> LogLines:
    """Keep what the proxies of a test log from now on."""
    lines = LogLines(level)
    monkeypatch.setitem(globals(), "_log", lambda: lines.log)
    return lines


# --- the four waits of a topic list, built one upon the other -------------------------------------
#
# With limits of 1 MiB and lists of 700 KB: `a` never reads and holds the direct memory, `b` holds the heap and waits
# for direct memory, `c` overshoots the heap (one grower may) and waits behind `b`, `d` can only wait to grow, with its
# broker connection paused.

# One list fills each memory limit. On a busy machine a reader stands longer than the rule of the least rate allows.
TIGHT: Final[dict[str, Any]] = {
    "maxTopicListInFlightHeapMemSizeMB": 1,
    "maxTopicListInFlightDirectMemSizeMB": 1,
    "topicListWriteMinBytesPerSecond": 0,
}
LEAST_RATE: Final = {"topicListWriteMinBytesPerSecond": Config.topic_list_write_min_bytes_per_second.default}


@dataclass
class Jam:
    """Clients, each stuck in another wait."""

    a: AsyncClient
    b: AsyncClient
    c: AsyncClient
    d: AsyncClient


async def direct_taken(stage: Stage) -> AsyncClient:
    """Have a client that never reads hold nearly all direct memory."""
    reader = await stage.connected(SLOW_READER_RCVBUF)
    await reader.ask_topics(namespace(0))
    output = stage.session_of(reader).output
    await stage.until(lambda: output.holds_memory and not stage.heap.held, "a body being written")
    assert stage.direct.held >= LIST_BYTES
    return reader


async def waiting_for_direct(stage: Stage, number: int = 1) -> AsyncClient:
    """Have one more client whose answer waits for direct memory."""
    already = stage.direct.queue_size
    client = await stage.connected()
    await client.ask_topics(namespace(number))
    await stage.until(lambda: stage.direct.queue_size == already + 1, "an answer that waits for direct memory")
    return client


async def jammed(stage: Stage) -> Jam:
    """Fill both limits of a TIGHT stage."""
    a = await direct_taken(stage)
    b = await waiting_for_direct(stage, 1)
    # Both questions are asked before the first answer comes: `d` would not be given its estimate any more.
    gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
    c, d = await stage.connected(), await stage.connected()
    await c.ask_topics(namespace(2))
    await stage.until(lambda: stage.outstanding == 1, "one question")
    await d.ask_topics(namespace(3))
    await stage.until(lambda: stage.outstanding == 2, "two questions")
    gate.set()
    await stage.until(lambda: stage.heap.growers_waiting == 1, "an answer that waits for heap memory")
    await stage.until(lambda: stage.direct.queue_size == 2, "an answer that waits for direct memory")
    # Which of the two came first is the broker's affair.
    ((growth,),) = stage.heap.waiters(1, 1)
    return Jam(a, b, c, d) if growth.key == namespace(3) else Jam(a, b, d, c)


async def queued_for_heap(stage: Stage, number: int = 4) -> AsyncClient:
    """Have one more client that waits in a jammed stage before its question is asked."""
    already = stage.heap.queue_size
    client = await stage.connected()
    await client.ask_topics(namespace(number))
    await stage.until(lambda: stage.heap.queue_size == already + 1, "a request queued for heap memory")
    return client
