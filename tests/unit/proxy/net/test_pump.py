"""The pump writes in short turns to whoever has room; what happens to one socket is no other's business."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.net.pump import (
    RETRY_SECONDS,
    STEP_BYTES,
    TURN_SECONDS,
    Pump,
)
from proxy.net.spill.body import Body
from proxy.net.transport import Endpoint
from proxy.requests.topic_lists.bodies import PagedBody
from tests.support.clients.list_clients import turns
from tests.support.loops.async_tests import on_both_loops
from tests.support.loops.loops import eventually, virtual
from tests.support.sockets.endpoints import recording_link
from tests.support.sockets.socket_pairs import FakeEndpoint

PREFIX = b"prefix of a frame"
MIB = 1024 * 1024


class EndlessRoom:
    """A body that every socket takes at once, a step at a time, or that fails as told."""

    def __init__(self, size: int, error: Exception | None = None) -> None:
        self.size = size
        self.error = error

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        if self.error is not None:
            raise self.error
        return len(prefix) + min(STEP_BYTES, self.size - max(0, position))

    def read(self, position: int, count: int) -> memoryview:
        raise NotImplementedError("nothing here is sealed")


class CountedLoop:
    """The running loop, which counts the turns of one that works in turns."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon(self, turn: Callable[[], None]) -> None:
        self._loop.call_soon(self._counted, turn)

    def _counted(self, turn: Callable[[], None]) -> None:
        self.turns += 1
        turn()


def epoll_sets() -> set[str]:
    directory = "/proc/self/fd/"
    return {name for name in os.listdir(directory) if os.path.realpath(directory + name).endswith("[eventpoll]")}


class Bench:
    """A pump whose turns are counted, and what is to be closed after it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.loop, self.counted, before = asyncio.get_running_loop(), CountedLoop(), epoll_sets()
        self.pump = Pump(cast(asyncio.AbstractEventLoop, self.counted), now)
        (self._epoll,) = epoll_sets() - before
        self.moved: list[int] = []
        self.closing: list[Any] = []
        self.lost: list[dict[str, Any]] = []

    @property
    def turns(self) -> int:
        return self.counted.turns

    def endpoint(self) -> FakeEndpoint:
        self.closing.append(FakeEndpoint())
        return cast(FakeEndpoint, self.closing[-1])

    def pages(self, data: bytes) -> PagedBody:
        body = PagedBody()
        body.append(memoryview(data))
        self.closing.append(body)
        return body

    def send(
        self, endpoint: FakeEndpoint, body: Body, on_moved: Callable[[int], None] | None = None
    ) -> "asyncio.Task[None]":
        target = cast(Endpoint, endpoint)
        return self.loop.create_task(self.pump.send(target, PREFIX, body, on_moved or self.moved.append))

    def watched(self) -> int:
        """Count the sockets in the epoll set."""
        with open(f"/proc/self/fdinfo/{self._epoll}") as info:
            return sum(line.startswith("tfd:") for line in info)


@asynccontextmanager
async def bench(now: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Bench]:
    """Give a pump; at the end it holds nothing."""
    on = Bench(now)
    on.loop.set_exception_handler(lambda _, context: on.lost.append(context))
    try:
        yield on
        assert (len(on.pump), on.watched()) == (0, 0)
    finally:
        on.pump.close()
        for closing in on.closing:
            closing.close()
        on.loop.set_exception_handler(None)


def full(endpoint: FakeEndpoint) -> int:
    """Fill a socket, and give how much it took."""
    sent = 0
    try:
        while True:
            sent += os.write(endpoint.fd, bytes(65536))
    except BlockingIOError:
        return sent


# --- turns ----------------------------------------------------------------------------------------


@virtual
async def test_no_turn_writes_on_when_its_time_is_over() -> None:
    class Now:
        value = 0.0

        def __call__(self) -> float:
            return self.value

    now = Now()
    async with bench(now) as on:
        steps = Counter[int]()

        def moved(count: int) -> None:
            steps[on.turns] += 1
            now.value += TURN_SECONDS / 3.9

        sends = [on.send(on.endpoint(), EndlessRoom(5 * STEP_BYTES), moved) for _ in range(20)]
        await asyncio.gather(*sends)
        assert sum(steps.values()) == 20 * 5
        assert max(steps.values()) == 4
        assert len(steps) == 25


class Unwilling(EndlessRoom):
    """A body that no socket takes, room or not, until `willing`; counts how often it was tried."""

    willing = False
    tried = 0

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        self.tried += 1
        if not self.willing:
            raise BlockingIOError("no room")
        return super().write(fd, prefix, position)


@virtual
async def test_a_socket_that_takes_nothing_though_it_seems_to_have_room_costs_no_turns() -> None:
    async with bench() as on:
        endpoint, body = on.endpoint(), Unwilling(100)
        sending = on.send(endpoint, body)
        await turns(20)
        # Once at first, and once for the room that was there when the socket was put under watch.
        assert (body.tried, sending.done()) == (2, False)
        await turns(50)
        assert (body.tried, on.turns) == (2, 1)
        # The kernel is short of memory of its own: it is asked again now and then.
        await asyncio.sleep(10 * RETRY_SECONDS)
        assert 5 <= body.tried <= 12
        body.willing = True
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert sending.done()


# --- one socket's troubles ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("a bug"), BrokenPipeError("gone")])
@virtual
async def test_a_write_that_fails_ends_its_own_connection_only(error: Exception) -> None:
    async with bench() as on:
        bad, good = on.endpoint(), on.endpoint()
        failing, going = on.send(bad, EndlessRoom(MIB, error)), on.send(good, EndlessRoom(MIB))
        await going
        with pytest.raises(ConnectionClosed):
            await failing
        is_bug = isinstance(error, RuntimeError)
        assert bad.cause is (DisconnectCause.INTERNAL_ERROR if is_bug else DisconnectCause.CONNECTION_RESET)
        assert bad.crashes == ([error] if is_bug else [])
        assert good.open


@pytest.mark.parametrize("stage", [0, 1, 20])
@virtual
async def test_a_write_given_up_leaves_nothing(stage: int) -> None:
    async with bench() as on:
        endpoint = on.endpoint()
        full(endpoint)
        sending = on.send(endpoint, on.pages(bytes(MIB)))
        await turns(stage)
        sending.cancel()
        await turns()
        assert sending.cancelled()
        assert on.watched() == 0
        # What it might have left behind must not be written either.
        filled = endpoint.received()
        await turns(20)
        assert endpoint.received() == 0 < filled


@virtual
async def test_the_next_owner_of_a_descriptor_gets_its_own_frame_and_nothing_else() -> None:
    async with bench() as on:
        gone, heir = on.endpoint(), on.endpoint()
        full(gone)
        full(heir)
        first = on.send(gone, on.pages(b"A" * MIB))
        await turns(20)
        # The first connection's number goes to the second, before the first one's task has heard of its end.
        gone.abort(DisconnectCause.CLIENT_CLOSED)
        os.dup2(heir.fd, gone.fd)
        heir.sock.close()
        heir.sock, gone.sock, heir.fd, gone.fd = gone.sock, heir.sock, gone.fd, -1
        second = on.send(heir, on.pages(b"B" * 1000))
        await turns(20)
        first.cancel()
        await turns()
        heir.peer.setblocking(False)
        data = bytearray()
        for _ in range(1000):
            with suppress(BlockingIOError):
                data += heir.peer.recv(MIB)
            await asyncio.sleep(0)
        assert second.done()
        # Before it is what filled the socket.
        assert data.strip(b"\0") == PREFIX + b"B" * 1000


@on_both_loops
async def test_a_reset_in_the_middle_of_a_body_ends_the_write() -> None:
    body = PagedBody()
    body.append(memoryview(bytes(20 * MIB)))
    pump = Pump(asyncio.get_running_loop(), asyncio.get_running_loop().time)
    async with recording_link(kernel_buffer_bytes=4096) as (endpoint, peer):
        sending = endpoint.loop.create_task(pump.send(endpoint, PREFIX, body, lambda count: None))
        await peer.read(1000)
        peer.reset()
        with pytest.raises(ConnectionClosed):
            await sending
        await eventually(lambda: not endpoint.open, "the end of the connection")
        assert len(pump) == 0
    pump.close()
    body.close()


@virtual
async def test_an_end_that_raises_keeps_no_other_body_waiting() -> None:
    class Fragile(FakeEndpoint):
        def abort(self, cause: DisconnectCause) -> None:
            super().abort(cause)
            raise ValueError("its own end")

    async with bench() as on:
        fragile = Fragile()
        on.closing.append(fragile)
        first = on.send(on.endpoint(), EndlessRoom(10 * STEP_BYTES))
        broken = on.send(fragile, EndlessRoom(10 * STEP_BYTES, ConnectionResetError()))
        others = [on.send(on.endpoint(), EndlessRoom(10 * STEP_BYTES)) for _ in range(10)]
        await turns(100)
        assert all(sending.done() for sending in (first, *others))
        with pytest.raises(ConnectionClosed):
            await broken
        assert [str(context["exception"]) for context in on.lost] == ["its own end"]
