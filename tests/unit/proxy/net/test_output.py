import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.core.errors import DisconnectCause
from proxy.core.tasks import CoarseDeadlines, TaskClock
from proxy.net.hangup import HangupWatcher
from proxy.net.output import ALLOWANCE_BYTES
from proxy.net.pump import Pump
from proxy.net.spill.body import Body, SpillableBody
from proxy.net.transport import Endpoint
from tests.support.clients.list_clients import ListClient
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import virtual
from tests.support.sockets.endpoints import hangup_watcher

LIMIT = 1_000_000
SLAB = 64 * 1024


class Stage:
    """A client whose kernel takes `room` bytes, and the memory that its unsent frames are booked in."""

    def __init__(self, hangup: HangupWatcher, direct: AsyncSemaphore, room: int) -> None:
        self.direct = direct
        self.client = ListClient(asyncio.get_running_loop(), hangup, direct, room=room)
        self.transport, self.output = self.client.socket, self.client.output

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work)


@asynccontextmanager
async def stage(room: int = 0) -> AsyncIterator[Stage]:
    """Give a client; the books must be zero at the end."""
    direct = AsyncSemaphore("direct", LIMIT, max_queue=0, timeout_seconds=1.0, clock=ManualClock())
    async with hangup_watcher() as watcher:
        on = Stage(watcher, direct, room)
        yield on
        on.client.abort(DisconnectCause.SHUTDOWN)
        on.transport.abort()
        await settle()
        assert (direct.held, direct.queue_size, on.output.pending_bytes) == (0, 0, 0)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def slices(*bodies: bytes) -> Sequence[memoryview]:
    return [memoryview(body) for body in bodies]


class HalfPump(Pump):
    """A pump that hands the first `taken` bytes of a body to the kernel, and the rest when it is let."""

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.let = asyncio.Event()

    async def send(self, endpoint: Endpoint, prefix: bytes, body: Body, on_moved: Callable[[int], None]) -> None:
        on_moved(self.taken)
        await self.let.wait()
        on_moved(len(prefix) + body.size - self.taken)


@dataclass
class Sized:
    """A body that nobody reads."""

    size: int

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        raise NotImplementedError

    def read(self, position: int, count: int) -> memoryview:
        raise NotImplementedError


class MovedFile:
    """The file of a list that has moved, which nobody reads."""

    def close(self) -> None:
        """Do nothing."""


class Copied(Sized):
    """A body that may move to disk."""

    def copy(self, position: int, buffer: memoryview) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Hold nothing."""


def spillable(direct: AsyncSemaphore) -> tuple[SpillableBody, Permit]:
    permit = direct.try_acquire(1000)
    assert permit is not None
    no_reads: Any = None
    return SpillableBody(Copied(1000), permit, no_reads, lambda body: None, shared=False, since=0.0), permit


def move(body: SpillableBody) -> None:
    file: Any = MovedFile()
    body.moved(file)


@asynccontextmanager
async def behind_a_list_on_disk() -> AsyncIterator[tuple[Stage, HalfPump]]:
    """Give a client whose list in progress is on disk."""
    async with stage(room=0) as on:
        (body, _), pump = spillable(on.direct), HalfPump(taken=4)
        on.start(on.output.send_pumped(b"head", body, pump))
        await settle()
        assert on.output.holds_memory
        move(body)
        assert (on.output.holds_memory, on.output.disk_bytes) == (False, 1000)
        yield on, pump


class TestMemoryBehindAListOnDisk:
    @virtual
    async def test_a_list_that_may_move_holds_memory_if_there_is_no_place_for_it(self) -> None:
        async with behind_a_list_on_disk() as (on, pump):
            body, permit = spillable(on.direct)
            waiting = on.start(on.output.send_pumped(b"head", body, pump))
            await settle()
            held = []
            for kept in (False, True, False):
                body.kept = kept
                held.append(on.output.holds_memory)
            assert held == [False, True, False], "a list that is about to move is nobody's fault"
            pump.let.set()
            await settle()
            assert on.output.sent_bytes == 2008
            await waiting
            body.close()
            permit.release()


class Share:
    """A share that its answer gives back when its client reads."""

    held = True

    def proven(self) -> None:
        self.held = False

    def stands(self) -> None:
        raise AssertionError("nobody stands still")


class TestProof:
    @virtual
    async def test_a_client_that_takes_an_answer_is_proven_once_the_bytes_are_taken(self) -> None:
        async with stage(room=0) as on:
            share = Share()
            pieces = slices(*[bytes(SLAB)] * 8)
            body = on.start(on.output.send_body(b"head", pieces, share=share))
            for _ in range(3):
                await settle()
                on.transport.take(SLAB)
            await settle()
            assert share.held
            while not body.done():
                on.transport.take(SLAB)
                await settle()
            assert not share.held


def has_stopped(clock: TaskClock) -> bool:
    return clock.stopped


class TestTheFirstByte:
    @virtual
    async def test_frames_before_the_body_are_not_its_beginning(self) -> None:
        async with stage(room=0) as on:
            clock = TaskClock(CoarseDeadlines(asyncio.get_running_loop(), TaskClock.run_out), 60.0)
            on.output.send(b"frame")
            body = on.start(on.output.send_body(b"head", slices(b"a"), clock=clock))
            await settle()
            on.output.send(b"more")
            assert not has_stopped(clock)
            for _ in range(3):
                on.transport.take(9)
                await settle()
            assert has_stopped(clock)
            assert body.done()
            assert on.transport.peer_bytes == b"framemoreheada"


class TestOrder:
    @virtual
    async def test_each_piece_is_fetched_when_the_one_before_has_left_and_not_before(self) -> None:
        async with stage(room=0) as on:
            fetched: list[int] = []

            def pieces() -> Iterator[memoryview]:
                for piece in slices(b"a" * SLAB, b"b" * 10):
                    fetched.append(len(piece))
                    yield piece

            body = on.start(on.output.send_body(b"head", pieces()))
            await settle()
            on.transport.take(SLAB)
            await settle()
            assert fetched == [SLAB]
            on.transport.take(4)
            await settle()
            assert fetched == [SLAB, 10]
            assert not body.done()
            on.transport.take(10)
            await body

    @virtual
    async def test_the_transport_never_holds_more_than_one_piece_of_a_body(self) -> None:
        async with stage(room=0) as on:
            body = on.start(on.output.send_body(b"head", slices(*[bytes(SLAB)] * 100)))
            while not body.done():
                on.transport.take(300_000)
                await settle()
            assert on.transport.largest_buffer <= SLAB + len(b"head")
            assert len(on.transport.peer_bytes) == 100 * SLAB + 4


class TestMemory:
    @virtual
    async def test_a_little_unsent_needs_no_permit(self) -> None:
        async with stage(room=0) as on:
            on.output.send(bytes(ALLOWANCE_BYTES))
            assert on.output.pending_bytes == ALLOWANCE_BYTES
            assert on.direct.held == 0
            assert on.client.reading

    @virtual
    async def test_frames_behind_a_body_are_booked_too(self) -> None:
        async with stage(room=0) as on:
            body = on.start(on.output.send_body(b"head", slices(bytes(SLAB))))
            await settle()
            assert on.direct.held == 0  # the body's permit is its owner's
            for _ in range(5):
                on.output.send(bytes(1000))
            assert on.direct.held == on.output.pending_bytes == 5000
            on.transport.take(SLAB + 4)
            await body
            assert on.output.pending_bytes == 5000
            assert on.direct.held == 5000
            on.transport.take(5000)
            assert on.direct.held == 0
            assert on.client.reading

    @pytest.mark.parametrize("frame_bytes", [1, 10_000])
    @virtual
    async def test_sending_after_the_end_books_nothing(self, frame_bytes: int) -> None:
        """A closed connection may linger with unsent bytes; nobody would give a permit for them back."""

        async with stage(room=0) as on:
            on.output.send(bytes(10_000))
            on.client.close(DisconnectCause.SHUTDOWN)
            assert on.direct.held == 0
            on.output.send(bytes(frame_bytes))
            assert on.direct.held == 0


class TestWhoIsWatched:
    @pytest.mark.parametrize("room", [0, 3])
    @virtual
    async def test_one_unsent_frame_is_enough(self, room: int) -> None:
        async with stage(room=room) as on:
            on.output.send(b"frame")
            assert on.output.progress is not None
            on.client.abort(DisconnectCause.CLIENT_CLOSED)
            assert on.output.progress is None

    @virtual
    async def test_a_ping_of_our_own_is_no_sign_of_life_and_any_byte_of_a_body_is(self) -> None:
        async with stage(room=100) as on:
            on.output.send(b"ping")
            assert not on.output.moved()
            body = on.start(on.output.send_body(b"head", slices(b"a" * SLAB)))
            await settle()
            assert on.output.moved()
            assert not on.output.moved()
            on.transport.take(1)
            assert on.output.moved()
            assert not on.output.moved()
            on.transport.take(1 << 30)
            await body

    @virtual
    async def test_bytes_that_only_the_kernel_saw_leave_are_a_sign_of_life(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with stage(room=0) as on:
            queued = [300, 300, 200]
            monkeypatch.setattr(Endpoint, "kernel_queue_bytes", lambda _: queued.pop(0) if queued else 0)
            body = on.start(on.output.send_body(b"head", slices(b"a" * SLAB)))
            await settle()
            progress = on.output.progress
            assert progress is not None
            assert on.output.moved()
            for expected in (False, False, True):
                on.output.sample(progress, 1.0)
                assert on.output.moved() == expected
            on.transport.take(1 << 30)
            await body


class TestInterruption:
    @virtual
    async def test_a_cancel_inside_a_body_ends_the_connection(self) -> None:
        async with stage(room=100) as on:
            body = on.start(on.output.send_body(b"head", slices(bytes(SLAB))))
            await settle()
            on.output.send(b"frame")
            body.cancel()
            with pytest.raises(asyncio.CancelledError):
                await body
            assert on.client.cause is DisconnectCause.WRITE_FAILED
            on.transport.take(1 << 30)
            assert b"frame" not in on.transport.peer_bytes  # it would be read as the rest of the body

    @virtual
    async def test_a_cancel_before_a_body_begins_harms_nobody(self) -> None:
        async with stage(room=0) as on:
            on.output.send(b"frame")
            body = on.start(on.output.send_body(b"head", slices(b"body")))
            await settle()
            body.cancel()
            await settle()
            on.transport.take(100)
            on.output.send(b"next")
            assert on.transport.peer_bytes == b"framenext"
            assert on.client.open


async def test_a_listener_that_raises_ends_its_client_and_keeps_no_other_from_hearing_the_pong() -> None:
    def fail() -> None:
        raise ValueError

    async with stage(room=LIMIT) as on:
        heard = list[int]()
        for listener in (lambda: heard.append(1), fail, lambda: heard.append(2)):
            on.output.call(listener)
        on.output.ponged()
        assert (heard, on.client.cause) == ([1, 2], DisconnectCause.INTERNAL_ERROR)
