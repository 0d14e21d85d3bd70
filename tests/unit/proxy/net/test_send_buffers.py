"""The send buffers of clients: small, large for large answers while the sum has room, and how long an answer waits."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.config.config import Config
from proxy.config.values import SMALL_SEND_BUFFER_BYTES
from proxy.core.counters import Counters
from proxy.net.send_buffers import (
    LONGEST_WAIT_SECONDS,
    MIDDLE_PART,
    STILL_SECONDS,
    TRIM_SECONDS,
    SendBuffer,
    SendBuffers,
    SendSettings,
)
from tests.support.loops.loops import virtual
from tests.support.proxies.counted import counted, counted_by

KIB = 1024
SMALL = SMALL_SEND_BUFFER_BYTES
LARGE = 256 * KIB
BEYOND = 2 * (LARGE - SMALL)


class Socket:
    """A kernel that doubles what it is asked for."""

    def __init__(self) -> None:
        self.size = 4_000_000
        self.asked: list[int] = []

    def setsockopt(self, level: int, name: int, value: int, /) -> None:
        assert (level, name) == (socket.SOL_SOCKET, socket.SO_SNDBUF)
        self.asked.append(value)
        self.size = 2 * value

    def getsockopt(self, level: int, name: int, /) -> int:
        assert (level, name) == (socket.SOL_SOCKET, socket.SO_SNDBUF)
        return self.size


class Client:
    """A client with a socket, which has taken all but `untaken` bytes."""

    def __init__(self, on: "Stage") -> None:
        self.socket = Socket()
        self.untaken = 0
        self.buffer = on.buffers.open(cast(Any, self))

    def own_socket(self) -> Socket:
        return self.socket

    def took_all_but(self, count: int) -> bool:
        return self.untaken <= count

    @property
    def size(self) -> int:
        assert self.buffer.size in (self.socket.size, 0)
        return self.socket.size


class Stage:
    """The buffers of all, with room for `large` large ones."""

    def __init__(self, large: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        # A part is for answers that wait in vain.
        memory = None if large is None else int(large * BEYOND * MIDDLE_PART / (MIDDLE_PART - 1)) + 1
        self.buffers = SendBuffers(self.loop, self.counters, SendSettings(LARGE, memory))

    def begin(self, buffer: SendBuffer, count: int = 1 << 20) -> "asyncio.Task[None]":
        return self.loop.create_task(begun(buffer, count))

    def large(self) -> Client:
        """Give a client in the middle of a large answer."""
        client = Client(self)
        assert client.buffer.grow(1_000_000)
        client.buffer.begin(1 << 20)
        client.untaken = 1_000_000
        return client


async def begun(buffer: SendBuffer, count: int = 1 << 20) -> None:
    """Begin an answer as an output does."""
    if not buffer.begin(count):
        await buffer.wait(count)


@asynccontextmanager
async def staged(large: float | None) -> AsyncIterator[Stage]:
    on = Stage(large)
    yield on
    assert (on.buffers.waiting, on.buffers.memory.used_bytes) == (0, 0)
    assert counted(on.counters, "client_send_buffer_limit_bytes") == 0


@virtual
async def test_a_connection_begins_small_and_is_as_large_as_its_largest_answer_needs() -> None:
    async with staged(3) as on:
        client = Client(on)
        assert client.size == 2 * SMALL
        needed = {0: SMALL, SMALL: SMALL, SMALL + 1: 2 * SMALL, 100 * KIB: 128 * KIB, 1 << 20: LARGE}
        for count, asked in needed.items():
            await begun(client.buffer, count)
            assert client.size == 2 * asked >= min(2 * count, 2 * LARGE)
            assert on.buffers.memory.used_bytes == 2 * (asked - SMALL)
            assert counted(on.counters, "client_send_buffer_limit_bytes") == client.size
            client.buffer.end()
        await begun(client.buffer, 0)
        client.buffer.end()
        assert client.size == 2 * LARGE, "a quick client asks the kernel once"
        client.buffer.close()


@virtual
async def test_memory_of_a_client_that_rests_goes_to_the_next_and_that_of_a_client_in_an_answer_does_not() -> None:
    async with staged(1) as on:
        first, second, third = Client(on), Client(on), Client(on)
        await begun(first.buffer)
        first.buffer.end()
        await begun(second.buffer)
        assert (first.size, second.size) == (2 * SMALL, 2 * LARGE)
        assert not third.buffer.grow(1 << 20)
        second.untaken = SMALL
        second.buffer.end()
        assert not third.buffer.grow(1 << 20), "the kernel still holds more than fits into a small buffer"
        second.untaken = SMALL // 2
        assert third.buffer.grow(1 << 20)
        assert (second.size, third.size) == (2 * SMALL, 2 * LARGE)
        for client in (first, second, third):
            client.buffer.close()


class TestAnswersThatWait:
    @virtual
    async def test_an_answer_waits_for_memory_and_goes_on_when_a_client_has_taken_its_own(self) -> None:
        async with staged(1) as on:
            holding, waiting = on.large(), Client(on)
            task = on.begin(waiting.buffer)
            await asyncio.sleep(STILL_SECONDS / 2)
            assert not task.done()
            holding.untaken = 0
            holding.buffer.end()
            await task
            assert (holding.size, waiting.size) == (2 * SMALL, 2 * LARGE)
            assert (waiting.buffer.lacking, counted(on.counters, "client_small_buffer_answers")) == (False, 0)
            for client in (holding, waiting):
                client.buffer.close()

    @pytest.mark.threat("send-buffers-fill")
    @virtual
    async def test_once_nobody_gives_memory_back_all_go_on_without_and_newcomers_do_not_wait(self) -> None:
        async with staged(1) as on:
            holding, waiting = on.large(), [Client(on) for _ in range(3)]
            began = on.loop.time()
            await asyncio.gather(*(on.begin(client.buffer) for client in waiting))
            assert STILL_SECONDS <= on.loop.time() - began < 2 * STILL_SECONDS
            now = on.loop.time()
            newcomer = Client(on)
            await begun(newcomer.buffer)
            assert on.loop.time() == now
            assert counted(on.counters, "client_small_buffer_answers") == 4
            assert all(client.buffer.lacking and client.size == 2 * SMALL for client in (*waiting, newcomer))
            holding.buffer.close()
            # What is left of an answer gets a buffer while it is written.
            newcomer.buffer.retry(1 << 20)
            assert (newcomer.buffer.lacking, newcomer.size) == (False, 2 * LARGE)
            # From then on others wait again: memory comes back.
            task = on.begin(waiting[0].buffer)
            await asyncio.sleep(STILL_SECONDS / 2)
            assert not task.done()
            newcomer.buffer.close()
            await task
            assert waiting[0].size == 2 * LARGE
            for client in waiting:
                client.buffer.close()

    @virtual
    async def test_who_leaves_while_it_waits_goes_on_at_once(self) -> None:
        async with staged(1) as on:
            holding, leaving = on.large(), Client(on)
            task = on.begin(leaving.buffer)
            await asyncio.sleep(0)
            leaving.buffer.close()
            began = on.loop.time()
            await task
            assert on.loop.time() == began
            holding.buffer.close()
            # Its place in the line goes with the next look.
            await asyncio.sleep(2 * STILL_SECONDS)

    @virtual
    async def test_nobody_waits_for_long_however_many_are_served_meanwhile(self) -> None:
        async with staged(1) as on:
            holding, last = on.large(), Client(on)
            crowd = [Client(on) for _ in range(200)]
            for client in crowd:
                on.begin(client.buffer)
            began = on.loop.time()
            task = on.begin(last.buffer)
            while not task.done():
                holding.buffer.close()
                await asyncio.sleep(STILL_SECONDS / 2)
                if (found := next((client for client in crowd if client.size == 2 * LARGE), None)) is not None:
                    crowd.remove(holding := found)
            assert LONGEST_WAIT_SECONDS <= on.loop.time() - began < LONGEST_WAIT_SECONDS + STILL_SECONDS
            assert last.buffer.lacking
            for client in (*crowd, last, holding):
                client.buffer.close()


@virtual
async def test_without_a_sum_each_connection_is_large_from_its_start_and_a_sum_can_come_later() -> None:
    async with staged(None) as on:
        clients = [Client(on) for _ in range(5)]
        assert [client.size for client in clients] == [2 * LARGE] * 5
        clients[0].untaken = 1 << 20
        for client in clients:
            await begun(client.buffer)
            client.buffer.end()
        on.buffers.apply(SendSettings(LARGE, BEYOND))
        assert [client.size for client in clients] == [2 * LARGE] + [2 * SMALL] * 4
        clients.append(Client(on))
        assert clients[-1].size == 2 * SMALL
        for client in clients:
            client.buffer.close()


@virtual
async def test_0_leaves_the_buffer_to_the_kernel_whatever_is_written() -> None:
    async with staged(3) as on:
        on.buffers.apply(SendSettings(0, None))
        client = Client(on)
        await begun(client.buffer, 1 << 30)
        client.buffer.overflowed()
        assert client.socket.asked == []
        assert counted(on.counters, "client_send_buffer_limit_bytes") >= client.socket.size
        client.buffer.close()


@pytest.mark.parametrize(
    ("keys", "memory"),
    [
        ({}, 256 << 20),
        ({"maxConcurrentInboundConnections": 0}, 256 << 20),
        # 500 connections with 480 KiB each stay below the sum.
        ({"maxConcurrentInboundConnections": 500}, None),
        ({"clientSocketSendMemoryMB": 0}, None),
        ({"clientSocketSendMemoryMB": -1}, None),
        ({"clientSocketSendBufferBytes": 0}, None),
        ({"clientSocketSendBufferBytes": 16_384}, None),
        ({"clientSocketSendMemoryMB": 7, "maxConcurrentInboundConnections": 100}, 7 << 20),
    ],
)
def test_a_sum_is_kept_where_it_is_less_than_all_connections_take(keys: dict[str, object], memory: int | None) -> None:
    overrides = {"brokerServiceURL": "pulsar://broker:6650"} | {key: str(value) for key, value in keys.items()}
    assert SendSettings.of(Config.load(overrides=overrides)).memory_bytes == memory


@virtual
async def test_a_connection_whose_look_raises_keeps_no_answer_waiting() -> None:
    async with staged(3) as on:
        holder, *others = [on.large() for _ in range(3)]
        waiting = [Client(on) for _ in range(4)]
        begun = [on.begin(client.buffer) for client in waiting]
        await asyncio.sleep(0)
        assert on.buffers.waiting == len(waiting)

        def fail(count: int) -> bool:
            raise ValueError

        holder.took_all_but = fail  # type: ignore[method-assign]
        holder.buffer.end()
        await asyncio.sleep(LONGEST_WAIT_SECONDS)
        assert all(task.done() for task in begun)
        assert counted_by(on.counters, "internal_errors") == {"send_buffers": 1}
        for client in (holder, *others, *waiting):
            client.buffer.close()


@virtual
async def test_a_lower_sum_is_kept_as_soon_as_clients_have_taken_their_answers() -> None:
    async with staged(3) as on:
        clients = [on.large() for _ in range(3)]
        on.buffers.apply(SendSettings(LARGE, 0))
        assert on.buffers.memory.used_bytes == 3 * BEYOND
        for left, client in enumerate(reversed(clients)):
            client.untaken = 0
            client.buffer.end()
            await asyncio.sleep(1.5 * TRIM_SECONDS)
            assert on.buffers.memory.used_bytes == (2 - left) * BEYOND
        for client in clients:
            client.buffer.close()
