"""Clients that do not read, or hardly: who is closed, who is not, and what becomes of the memory they held.

But for the first test the proxy's clock stands still and a test calls the sweeps itself, a second apart: real sockets
and real windows in a time of its own.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.connection import ClientConnection
from proxy.config.values import SMALL_SEND_BUFFER_BYTES
from proxy.net.send_buffers import MIDDLE_BYTES
from tests.support.brokers.embedded.script import AfterHandshake
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import PING, AsyncClient, Closed, eventually, schema_frame
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    LEAST_RATE,
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPIC,
    TOPICS,
    Stage,
    direct_taken,
    namespace,
    staged,
    waiting_for_direct,
)
from tests.support.proxies.storms import timeless

KIB: Final = 1024
STALLED: Final = "write_stalled"
TOO_SLOW: Final = "reads_too_slowly"
# A list that fills large receive buffers many times.
LONG_LIST: Final[dict[str, Any]] = {
    "maxMessageSize": 32 * MIB,
    "maxTopicListInFlightHeapMemSizeMB": 20,
    "maxTopicListInFlightDirectMemSizeMB": 10,
    "clientSocketSendBufferBytes": 262_144,
}


def still_sending(session: ClientConnection) -> bool:
    """Tell whether the kernel is sending: what does not fit into a window goes as late as 200 ms after the rest."""
    assert session.transport is not None
    sock = session.transport.get_extra_info("socket")
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    # tcpi_unacked, tcpi_notsent_bytes and tcpi_snd_wnd of linux/tcp.h.
    under_way, unsent, window = (struct.unpack_from("I", info, offset)[0] for offset in (24, 144, 228))
    return bool(under_way or (unsent and window))


class Seconds:
    """The seconds of one proxy's watch, which pass when a test says so."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._now = 0

    async def stand_still(self) -> None:
        """Wait until the kernels have moved what they can: no time has passed for those who do not read."""
        seen: list[list[int]] = []

        def still() -> bool:
            sessions = [self._stage.session_of(client) for client in self._stage.clients]
            seen.append([session.kernel_queue_bytes() for session in sessions])
            settled = len(seen) > 10 and all(sample == seen[-1] for sample in seen[-10:])
            return settled and not any(map(still_sending, sessions))

        await eventually(still, "writers that stand still")

    async def pass_by(self, count: int = 1) -> None:
        for _ in range(count):
            await self._stage.proxy.memory.writes.sweep(self._now)
            self._now += 1


@asynccontextmanager
async def timed(store: GeneratedTopics | None = None, **keys: Any) -> AsyncIterator[tuple[Stage, Seconds]]:
    async with timeless(store, **{"topicListWriteStallTimeoutMillis": 20_000} | keys) as stage:
        yield stage, Seconds(stage)


async def unread_schema(stage: Stage) -> AsyncClient:
    schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=bytes(LIST_BYTES))
    stage.broker.answers.schemas[TOPIC] = [schema]
    client = await stage.connected(SLOW_READER_RCVBUF)
    await client.send(schema_frame(1, TOPIC))
    await stage.until(lambda: stage.direct.held >= LIST_BYTES and stage.proxy.memory.writes, "a schema being written")
    return client


async def unread_pongs(stage: Stage) -> AsyncClient:
    client = await stage.connected(SLOW_READER_RCVBUF)
    session = stage.session_of(client)
    while session.reading:
        client.flood(PING * 16)
        await asyncio.sleep(0)
    return client


async def was_reset(client: AsyncClient) -> bool:
    """Read what there is; tell whether it ends with an RST, after which no kernel keeps what was unsent."""
    try:
        await client.receive(100 * MIB)
    except Closed as closed:
        return isinstance(closed.__cause__, ConnectionResetError)
    return False


async def test_the_proxys_own_clock_closes_a_stalled_reader_and_its_memory_serves_the_next() -> None:
    async with staged(**TIGHT) as stage:
        await direct_taken(stage)
        waiting = await waiting_for_direct(stage)
        # Not for the next: a busy machine may let that one wait as long.
        with stage.changed(topicListWriteStallTimeoutMillis=300):
            await stage.until(lambda: stage.caused(STALLED) == 1, "the stalled reader closed")
        assert len((await waiting.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS


class TestStalledReaders:
    @pytest.mark.threat("unread-answers")
    @pytest.mark.parametrize("unread", [direct_taken, unread_schema, unread_pongs])
    async def test_who_takes_nothing_is_closed_whatever_waits_for_it(
        self, unread: Callable[[Stage], Awaitable[AsyncClient]]
    ) -> None:
        async with timed() as (stage, seconds):
            neighbour, client = await stage.connected(), await unread(stage)
            await seconds.stand_still()
            await seconds.pass_by(20)
            assert stage.caused(STALLED) == 0
            assert counted(stage.proxy.counters, "client_stalled_readers") == 1
            await seconds.pass_by(1)
            assert stage.caused(STALLED) == 1
            await stage.until(lambda: not stage.direct.held, "its memory free")
            assert counted(stage.proxy.counters, "client_evicted_bytes") > 0
            assert await was_reset(client)
            await neighbour.ping()

    async def test_0_is_never(self) -> None:
        async with timed(topicListWriteStallTimeoutMillis=0) as (stage, seconds):
            client = await direct_taken(stage)
            await seconds.pass_by(1000)
            assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS

    async def test_a_relayed_client_may_stand_still_for_ever(self) -> None:
        async with timed() as (stage, seconds):
            stage.broker.script.after_handshake = AfterHandshake.FLOOD
            await stage.relayed(SLOW_READER_RCVBUF)
            await stage.until(lambda: any(s.unsent_bytes for s in stage.broker.connections), "a relay that stands")
            await seconds.pass_by(100)
            assert len(stage.proxy.sessions) == 1
            assert len(stage.proxy.memory.writes) == 0


class TestSlowReaders:
    async def test_a_slow_but_steady_reader_gets_its_list_while_nobody_waits(self) -> None:
        async with timed(**TIGHT) as (stage, seconds):
            client = await direct_taken(stage)
            size = int.from_bytes(await client.receive(4), "big")
            for _ in range(200):
                await client.receive(2 * KIB)
                await seconds.pass_by(1)
            await client.receive(size - 200 * 2 * KIB)
            await stage.until(lambda: stage.outcome("answered") == 1, "the list answered")

    async def test_a_slow_reader_goes_when_another_waits_and_that_one_is_served(self) -> None:
        async with timed(**TIGHT | LEAST_RATE) as (stage, seconds):
            slow = await direct_taken(stage)
            waiting = await waiting_for_direct(stage)
            while not stage.caused(TOO_SLOW):
                await slow.receive(2 * KIB)
                await seconds.pass_by(1)
            assert stage.direct.queue_size == 0
            assert len((await waiting.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
            assert stage.caused(STALLED) == 0

    @pytest.mark.parametrize("rcvbuf", [4 * KIB, 128 * KIB, MIB])
    async def test_a_steady_reader_lives_through_the_steps_of_its_window(self, rcvbuf: int) -> None:
        """The kernel takes bytes in steps of 100 KB and the window opens in steps, too: for seconds nothing moves."""
        async with timed(store=GeneratedTopics(20, 90_000, 100), **LONG_LIST) as (stage, seconds):
            client = await stage.connected(rcvbuf)
            await client.ask_topics(namespace(0))
            await stage.until(lambda: stage.direct.held > 5 * MIB, "a body being written")
            waiting = await stage.connected()
            await waiting.ask_topics(namespace(1))
            await stage.until(lambda: stage.direct.queue_size == 1, "another that waits")
            for _ in range(80):
                await client.receive(40 * KIB)
                # A busy kernel moves bytes late; the second is over when it has.
                await seconds.stand_still()
                await seconds.pass_by(1)
            assert (stage.caused(TOO_SLOW), stage.caused(STALLED)) == (0, 0)
            assert stage.direct.queue_size == 1
            # What it reads of a large receive buffer may now show so seldom that it counts as stalled.
            while not stage.caused(TOO_SLOW) + stage.caused(STALLED):
                await client.receive(8 * KIB)
                await seconds.pass_by(1)
            assert len((await waiting.answer()).getTopicsOfNamespaceResponse.topics) == 90_000


class TestSendBuffers:
    def send_buffer_of(self, session: ClientConnection) -> int:
        assert session.transport is not None
        size = session.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert isinstance(size, int)
        return size

    async def test_the_gauge_is_what_lookup_sockets_may_fill_now(self) -> None:
        async with staged(clientSocketSendBufferBytes=50_000, clientSocketSendMemoryMB=-1) as stage:
            clients = [await stage.connected() for _ in range(3)]
            await stage.relayed()
            counters = stage.proxy.counters
            assert counted(counters, "client_send_buffer_limit_bytes") == 3 * 100_000
            clients[0].close()
            await stage.until(lambda: counted(counters, "client_send_buffer_limit_bytes") == 2 * 100_000, "one less")
            await stage.settle()
            assert counted(counters, "client_send_buffer_limit_bytes") == 0

    async def test_a_client_has_a_large_buffer_once_it_had_a_large_answer_and_gives_it_to_the_next(self) -> None:
        small, large = 2 * SMALL_SEND_BUFFER_BYTES, 2 * 131_072
        async with staged(clientSocketSendBufferBytes=131_072, clientSocketSendMemoryMB=1) as stage:
            clients = [await stage.connected() for _ in range(6)]
            sessions = [stage.session_of(client) for client in clients]
            for client in clients:
                await client.ping()
            assert [self.send_buffer_of(session) for session in sessions] == [small] * 6
            memory = stage.proxy.services.send_buffers.memory
            for number, client in enumerate(clients):
                assert len((await client.topics(namespace(number))).topics) == TOPICS
                assert memory.used_bytes <= MIB
            # A sum of 1 MiB has room for four of them.
            assert sorted(map(self.send_buffer_of, sessions)) == [small] * 2 + [large] * 4
            assert counted(stage.proxy.counters, "client_send_buffer_limit_bytes") == 2 * small + 4 * large
            assert counted(stage.proxy.counters, "client_small_buffer_answers") == 0

    @pytest.mark.threat("send-buffers-fill")
    async def test_who_does_not_read_keeps_the_large_buffers_and_nobody_elses_answer(self) -> None:
        keys: dict[str, Any] = {"clientSocketSendBufferBytes": 131_072, "clientSocketSendMemoryMB": 1}
        async with timed(**keys) as (stage, seconds):
            unread = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(4)]
            for number, client in enumerate(unread):
                await client.ask_topics(namespace(number))
            await stage.until(lambda: len(stage.proxy.memory.writes) == 4, "four lists being written")
            await seconds.stand_still()
            memory, client = stage.proxy.services.send_buffers.memory, await stage.connected()
            assert len((await client.topics(namespace(9))).topics) == TOPICS
            assert counted(stage.proxy.counters, "client_small_buffer_answers") == 1
            # A part of the sum is for those that have waited in vain.
            assert self.send_buffer_of(stage.session_of(client)) == 2 * MIDDLE_BYTES
            large, middle = 131_072 - SMALL_SEND_BUFFER_BYTES, MIDDLE_BYTES - SMALL_SEND_BUFFER_BYTES
            # The kernel says late that its client has taken the answer.
            await stage.until(lambda: memory.resting, "a buffer at rest")
            assert (memory.used_bytes, len(memory.resting)) == (4 * 2 * large + 2 * middle, 1)
            for each in unread:
                assert len((await each.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
            # The next answer has the memory of one that has been taken.
            assert len((await client.topics(namespace(9))).topics) == TOPICS
            assert self.send_buffer_of(stage.session_of(client)) == 2 * 131_072
            assert counted(stage.proxy.counters, "client_small_buffer_answers") == 1
