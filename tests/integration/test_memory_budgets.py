"""Resident memory of the proxy as a process of its own, against what its budget declares, at a tenth of full size.

The peak is the kernel's high-water mark, so no short peak is missed. Idle is measured when the web port is up and no
client has come.
"""

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.command_type import CommandType
from proxy.app.memory.budget import CONNECTION_AT_REST_BYTES, REQUEST_BYTES, SLACK_PERCENT, UNFINISHED_BYTES
from proxy.cli.demo.storm import Storm, StormPlan
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.core.descriptors import raise_descriptor_limit
from proxy.core.tasks import TaskScope
from proxy.net.output import OVERSHOOT_BYTES
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.script import AfterHandshake
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import (
    LOOPBACK,
    PING,
    AsyncClient,
    connect_frame,
    eventually,
    lookup_frame,
    new_schema_frame,
    topics_frame,
)
from tests.support.patience import PATIENCE_SECONDS, in_time, patient
from tests.support.proxies.proxy_under_test import MIB, SLOW_READER_RCVBUF, TOPIC, namespace
from tests.support.proxies.running_proxy import Running, child_proxy
from tests.support.web.web_pages import Scrape, scrape

KIB: Final = 1024
QUIET_ROUNDS: Final = 20
QUIET_SECONDS: Final = 2.0
LIMIT_KEY: Final = "maxTopicListInFlight{}MemSizeMB"


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@dataclass
class Weighed(Running):
    """A proxy in a process of its own, its memory at rest and the broker behind it."""

    broker: EmbeddedBroker
    idle_bytes: int
    work: TaskScope

    @property
    def growth_bytes(self) -> int:
        """Give the most memory the process ever had beyond that at rest."""
        return self.child.peak_resident_bytes() - self.idle_bytes

    def push(self, client: AsyncClient, data: bytes) -> None:
        """Go on sending as the proxy takes it, until it closes the connection or the test ends."""
        self.work.start(_pushed(client, data))

    async def scrape(self) -> Scrape:
        return await scrape(self.web_port)

    async def until(self, condition: Callable[[Scrape], object], what: str) -> Scrape:
        """Scrape until `condition` holds."""
        deadline = asyncio.get_running_loop().time() + patient(PATIENCE_SECONDS)
        while not condition(at := await self.scrape()):
            assert self.child.running, self.child.tail()
            assert asyncio.get_running_loop().time() < deadline, f"expected {what}, got {at.samples}"
        return at

    async def quiet(self, *names: str) -> None:
        """Scrape until these metrics stand still: the proxy has done with its clients all it will."""

        async def look() -> list[float]:
            await asyncio.sleep(QUIET_SECONDS / QUIET_ROUNDS)
            at = await self.scrape()
            return [at(name) for name in names]

        await self._still(look)

    async def unmoved(self, asker: AsyncClient) -> None:
        """Ask for PONGs until nothing moves between proxy and broker.

        A scrape would be part of what is weighed: its page takes 250 KB anew once relays have taken the place it had.
        """
        await self._still(asker.ping)

    async def _still(self, look: Callable[[], Awaitable[object]]) -> None:
        seen: object = None
        same = 0
        async with in_time(40):
            while same < QUIET_ROUNDS:
                now = await look(), self.broker.record.sent_bytes, self.broker.record.received.total()
                same = same + 1 if now == seen else 0
                seen = now

    def allowed(self, heap_mib: float, direct_mib: float, connections: int, largest_answer: int = 0) -> int:
        """Compute what the budget declares."""
        limits = round((100 + SLACK_PERCENT) / 100 * (heap_mib + direct_mib) * MIB)
        return limits + CONNECTION_AT_REST_BYTES * connections + largest_answer


async def _pushed(client: AsyncClient, data: bytes) -> None:
    with suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(client.sock, data)


@asynccontextmanager
async def weighed(directory: Path, store: GeneratedTopics | None = None, **keys: object) -> AsyncIterator[Weighed]:
    """Run broker and proxy; afterwards nothing of the clients is left in the proxy.

    With `servicePortTls` among the keys that is the port of the clients.
    """
    crashes: list[BaseException] = []
    work = TaskScope(crashes.append)
    # Clients that do not read yet are the test's doing, however long a busy machine takes.
    unhurried = {
        "keepAliveIntervalSeconds": 3600,
        "tcpUserTimeoutMillis": 0,
    }
    async with (
        EmbeddedBroker(store or GeneratedTopics(20, 100, 100)) as broker,
        child_proxy(directory, broker, brokerProxyAllowedTargetPorts="*", **unhurried, **keys) as running,
    ):
        if "servicePortTls" in keys:
            running.port = (await running.child.said("tls_port"))["tls_port"]
        proxy = Weighed(**vars(running), broker=broker, idle_bytes=running.child.resident_bytes(), work=work)
        try:
            yield proxy
        finally:
            work.cancel()
            await work.emptied()
        for client in proxy.clients:
            client.close()
        # A list that waited for a broker gives back a turn of the loop after its client left.
        held = ("active_connections", *(f"topic_list_{limiter}_memory_used_bytes" for limiter in ("heap", "direct")))
        at = await proxy.until(lambda at: not any(map(at, held)), "no client and no permit")
        internal = at.family("pulsar_proxy_internal_errors_total")
        assert not any(internal.values()), internal
    assert not crashes, crashes


def limits(heap_mib: int, direct_mib: int) -> dict[str, Any]:
    return {LIMIT_KEY.format("Heap"): heap_mib, LIMIT_KEY.format("Direct"): direct_mib}


# A busy machine takes minutes for a storm of lists; how long they wait is not what these tests are about.
UNHURRIED: Final = dict.fromkeys(
    (
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis",
        "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis",
        "topicListRequestTimeoutMillis",
    ),
    600000,
) | {"topicListWriteMinBytesPerSecond": 0}


def report(name: str, proxy: Weighed, allowed: int) -> None:
    print(f"{name}: grew {proxy.growth_bytes:,} of {allowed:,} bytes (idle {proxy.idle_bytes:,})")


# --- topic lists ----------------------------------------------------------------------------------


async def test_a_storm_of_late_readers_is_answered_within_the_promise(tmp_path: Path) -> None:
    connections, heap, direct = 100, 20, 20
    store = GeneratedTopics(connections, 10_000, 100)
    async with weighed(tmp_path, store, **limits(heap, direct), **UNHURRIED) as proxy:
        plan = StormPlan(connections, requests=4, topics=10_000, slow_share=1.0, late_seconds=2.0)
        storm = Storm(plan, [store.namespace(number) for number in range(connections)])
        await storm.run(proxy.port, patient(10), patient(50))
        tally = storm.tally
        assert (tally.answered, tally.refused, tally.wrong, tally.lost) == (400, 0, 0, 0), tally.refusals
        assert tally.largest_answer_bytes > 1_000_000
        at = await proxy.scrape()
        peaks = [at("lists_peak_held_bytes", limiter=limiter) / MIB for limiter in ("heap", "direct")]
        assert min(peaks) > 0.8 * 20, peaks
        allowed = proxy.allowed(heap, direct, connections, tally.largest_answer_bytes)
        report("late readers", proxy, allowed)
        assert proxy.growth_bytes <= allowed


async def test_requests_that_a_silent_broker_does_not_answer_cost_6_kib_each(tmp_path: Path) -> None:
    # Further lists of a connection would wait, and cost less.
    connections, lists_each, lookups_each, in_work = 100, LISTS_AT_ONCE, 28, 3_000
    # The last places are kept for connections that have few requests outstanding.
    async with weighed(tmp_path, maxConcurrentLookupRequests=2 * in_work, **limits(1, 1)) as proxy:
        proxy.broker.script.silent |= {CommandType.GET_TOPICS_OF_NAMESPACE, CommandType.LOOKUP}
        for number in range(connections):
            client = await proxy.connected(SLOW_READER_RCVBUF)
            lists = b"".join(topics_frame(1 + at, namespace(number % 20)) for at in range(lists_each))
            proxy.push(client, lists + b"".join(lookup_frame(9 + at, TOPIC) for at in range(lookups_each)))
        totals = [float(connections * lists_each), float(connections * lookups_each)]
        names = ("get_topics_of_namespace_requests_total", "lookup_requests_total")
        await proxy.until(lambda at: [at(name) for name in names] == totals, "all requests read")
        await proxy.quiet(*names)
        at = await proxy.scrape()
        refused = at("rejected_get_topics_of_namespace_requests_total") + at("rejected_lookup_requests_total")
        assert (refused, sum(totals)) == (0, in_work)
        allowed = proxy.allowed(1, 1, connections) + in_work * REQUEST_BYTES
        report("silent broker", proxy, allowed)
        assert proxy.growth_bytes <= allowed


# --- connections ----------------------------------------------------------------------------------


async def test_a_thousand_idle_connections_cost_8_kib_each(tmp_path: Path) -> None:
    async with weighed(tmp_path) as proxy:
        for _ in range(1_000):
            await proxy.connected()
        assert (await proxy.scrape())("active_connections") == 1_000
        allowed = proxy.allowed(0, 0, 1_000)
        report("idle connections", proxy, allowed)
        assert proxy.growth_bytes <= allowed


async def test_large_frames_that_never_end_hold_no_more_than_their_limits_and_one_growth(tmp_path: Path) -> None:
    connections, direct, handshakes = 300, 16, 2
    connect = connect_frame(auth_data=bytes(60 * KIB))
    request = new_schema_frame(1, TOPIC, MIB - KIB)
    keys = {"handshakeTimeoutMillis": 60_000, **limits(1, direct)}
    async with weighed(tmp_path, **keys) as proxy:
        for _ in range(connections // 2):
            proxy.push(await proxy.client(), connect[: len(connect) // 2])
            proxy.push(await proxy.connected(), request[: len(request) // 2])
        # Large frames have as much as a quarter of direct memory, and one of them may pass that.
        used, share = "memory_budget_used_bytes", direct * MIB / 4
        await proxy.until(lambda at: at(used, owner="large_questions") > 0.6 * share, "frames that wait for memory")
        await proxy.quiet("active_connections")
        at = await proxy.scrape()
        assert at(used, owner="large_questions") <= share + MIB
        assert at("lists_peak_held_bytes", limiter="direct") == 0
        before_connected = at(used, owner="handshake_frames")
        assert 0.6 * handshakes * MIB < before_connected <= handshakes * MIB + len(connect)
        # One growth of each may pass its limit: an announced frame of a MiB, a CONNECT of 60 KiB. Who waits has the
        # beginning of a frame.
        allowed = proxy.allowed(0, direct // 4 + handshakes + 1, connections) + len(connect)
        allowed += UNFINISHED_BYTES * connections
        report("unfinished frames", proxy, allowed)
        assert proxy.growth_bytes <= allowed
        await (await proxy.connected()).ping()


# --- clients that ask and do not read -------------------------------------------------------------


@pytest.mark.parametrize("what", ["lookups", "pings"])
async def test_clients_that_ask_and_never_read_are_bounded(tmp_path: Path, what: str) -> None:
    connections, in_work = 50, 1_000
    keys: dict[str, Any] = {**limits(1, 1), "clientSocketSendBufferBytes": 4096, "maxConcurrentLookupRequests": in_work}
    async with weighed(tmp_path, **keys) as proxy:
        asked = b"".join(lookup_frame(at, TOPIC) for at in range(1_000)) if what == "lookups" else PING * 50_000
        for _ in range(connections):
            proxy.push(await proxy.connected(SLOW_READER_RCVBUF), asked)
        await proxy.quiet("active_connections", "topic_list_direct_memory_used_bytes", "lookup_requests_total")
        held = (await proxy.scrape())("lists_peak_held_bytes", limiter="direct")
        # One client at a time may pass a full limit a little; the next is closed.
        assert 0 < held <= MIB + OVERSHOOT_BYTES
        allowed = proxy.allowed(1, 1, connections)
        if what == "lookups":
            allowed += in_work * REQUEST_BYTES
        report(f"unread {what}", proxy, allowed)
        assert proxy.growth_bytes <= allowed
        await (await proxy.connected()).ping()


@pytest.mark.threat("partial-connect-answers")
@pytest.mark.parametrize("announced", [4 * KIB, 64 * KIB])
async def test_listeners_that_never_end_their_answer_to_connect_cost_two_connections_each(
    tmp_path: Path, announced: int
) -> None:
    answered = 0

    async def begin(peer: AsyncClient) -> None:
        nonlocal answered
        await peer.frame()
        size = (announced - 4).to_bytes(4, "big") + (announced - 8).to_bytes(4, "big")
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(peer.sock, (size + connected).ljust(announced - 1, b"v"))
        answered += 1
        await peer.rest()

    # The first bytes of CONNECTED, as far as its version's text.
    connected = b"\x08\x03\x1a\x80\x80\x04\x0a\x80\x80\x04"
    relays = 400
    keys = {"brokerProxyConnectTimeoutMs": 600_000, **limits(1, 1)}
    async with weighed(tmp_path, **keys) as proxy, raw_broker(begin) as listening:
        for _ in range(relays):
            client = await proxy.client()
            await client.send(connect_frame(f"{LOOPBACK}:{listening.port}"))
        await eventually(lambda: answered == relays, "all answers sent", 40)
        await proxy.quiet("active_connections")
        allowed = proxy.allowed(0, 0, 2 * relays)
        report(f"answers of {announced} bytes to CONNECT", proxy, allowed)
        assert proxy.growth_bytes <= allowed


async def test_relays_that_nobody_reads_hold_one_read_each_while_the_broker_floods(tmp_path: Path) -> None:
    relays, buffer = 50, 256 * KIB
    async with weighed(tmp_path, relayBufferBytes=buffer, **limits(1, 1)) as proxy:
        proxy.broker.script.after_handshake = AfterHandshake.FLOOD
        for _ in range(relays):
            client = await proxy.client(SLOW_READER_RCVBUF)
            await client.connect(target=f"{LOOPBACK}:{proxy.broker.port}")
        await proxy.quiet("active_connections", "binary_bytes_total")
        assert all(session.unsent_bytes for session in proxy.broker.connections)
        allowed = 2 * buffer * relays + proxy.allowed(0, 0, relays)
        report("relays", proxy, allowed)
        assert proxy.growth_bytes <= allowed


# --- what one more relay takes --------------------------------------------------------------------


async def one_more(proxy: Weighed, first: int, then: int, rcvbuf: int | None) -> float:
    """Return what each of `then` relays takes behind the first ones, once all of them stand still."""
    asker = await proxy.connected()
    taken = []
    for count in (first, then):
        for _ in range(count):
            await (await proxy.client(rcvbuf)).connect(target=f"{LOOPBACK}:{proxy.broker.port}")
        await proxy.unmoved(asker)
        taken.append(proxy.child.resident_bytes())
    return (taken[1] - taken[0]) / then


@pytest.mark.parametrize("stands", [False, True])
async def test_one_more_relay_takes_what_a_connection_has_and_one_read_more_where_its_client_stands(
    tmp_path: Path, stands: bool
) -> None:
    buffer, allowed = 64 * KIB, CONNECTION_AT_REST_BYTES
    async with weighed(tmp_path, relayBufferBytes=buffer, **limits(1, 1)) as proxy:
        if stands:
            proxy.broker.script.after_handshake = AfterHandshake.FLOOD
            allowed += buffer + UNFINISHED_BYTES
        # Of the first hundred many find memory that the start has left free.
        each = await one_more(proxy, 100, 200, SLOW_READER_RCVBUF if stands else None)
        print(f"one more relay, stands {stands}: {each:,.0f} of {allowed:,} bytes")
        assert each <= allowed
