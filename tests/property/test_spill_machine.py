"""Lists that move to disk while clients read, pause and leave, and while the disk answers late, fails or is full.

Whatever comes in whatever order: each reader gets its list's bytes in order, a list is wholly in memory or wholly on
disk, and at the end all permits, all space, all files and all reads are given back.
"""

import asyncio
import errno
import io
import math
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.slabs import SLAB_BYTES
from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.net.spill.body import ListReader, SpillableBody
from proxy.net.spill.judge import SWEEP_SECONDS
from proxy.net.spill.read_back import DiskRead
from proxy.net.spill.space import SpillSpace
from proxy.net.spill.spill import BURST_SECONDS, ListSpill, SpillSettings
from proxy.requests.topic_lists.bodies import LeavingBody, PagedBody
from tests.support.brokers.answers import answer_of
from tests.support.cores import core_of
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import VirtualLoop, run_virtual
from tests.support.proxies.counted import counted
from tests.support.sockets.fake_disk import FakeDisk, StandingWorkers

MIB = 1024 * 1024
# So many sweeps, twice, see memory short for longer than a burst, and then a slow reader in two windows. They take less
# time than a disk that does not answer gets.
HALF_BURST_SWEEPS = int(BURST_SECONDS / 2 / SWEEP_SECONDS) + 4
LISTS, SHARERS = 3, 2


class Reader(ListReader):
    """A socket as the pump sees it: takes bytes from memory, or asks for bytes on disk."""

    def __init__(self, body: SpillableBody, expected: bytes) -> None:
        super().__init__()
        self.body = body
        self.expected = expected
        self.read: DiskRead | None = None
        self.failed = False
        self.left = False

    def begin(self) -> None:
        self.body.begin(self)

    def take(self, count: int) -> None:
        """Take bytes if there are any to take now."""
        if self.left or self.failed or self.read is not None or self.position >= self.body.size:
            return
        if self.body.file is None:
            self._took(bytes(self.body.read(self.position, count)))
        else:
            self.read = self.body.read_from_disk(self.position, count, self._arrived)

    def leave(self) -> None:
        if not self.left:
            self.left = True
            if self.read is not None:
                self.read.end()
            self.body.end(self)

    def _arrived(self, data: bytes | None) -> None:
        assert not self.left, "a reader that left is not called"
        read, self.read = self.read, None
        if data is None:
            self.failed = True
        else:
            # The socket takes a part; the rest is read again.
            self._took(data[: max(1, len(data) // 2)])
        assert read is not None
        read.end()

    def _took(self, data: bytes) -> None:
        assert data == self.expected[self.position : self.position + len(data)]
        assert data
        self.position += len(data)


class World:
    """Lists for one reader and a list for several, over a disk whose answers a test gives."""

    def __init__(self) -> None:
        self.counters, self.disk = Counters(), FakeDisk()
        self.writers, self.readers = StandingWorkers(), StandingWorkers()
        self.space = SpillSpace(3 * MIB, 3, self.counters)
        self.direct = AsyncSemaphore("direct", 10 * MIB, max_queue=0, timeout_seconds=10**6, clock=ManualClock())
        log = open_log("error", "json", io.BytesIO())
        core, workers = core_of(counters=self.counters, log=log), (self.writers, self.readers)
        self.spill = ListSpill(core, self.disk, self.space, lambda: self.direct.short, *workers)
        self.spill.apply(SpillSettings(3 * MIB, self.space.key_cap_percent, math.inf))
        self.lists: list[tuple[SpillableBody, Permit, list[Reader]]] = []
        for number in range(LISTS):
            answer = answer_of(SLAB_BYTES * (number + 1) + 4567)
            expected = b"".join(bytes(piece) for piece in answer.slices())
            permit = self.direct.try_acquire(answer.size, key=number % 2)
            assert permit is not None
            shared = number == LISTS - 1
            if shared:
                memory: PagedBody | LeavingBody = PagedBody()
                for piece in answer.consume():
                    memory.append(piece)  # type: ignore[union-attr]
            else:
                memory = LeavingBody(answer, lambda left: None)
            body = self.spill.watch(memory, permit, shared=shared)
            readers = [Reader(body, expected) for _ in range(SHARERS if shared else 1)]
            self.lists.append((body, permit, readers))
        self.waiter: asyncio.Task[Permit] | None = None

    @property
    def all_readers(self) -> list[Reader]:
        return [reader for _, _, readers in self.lists for reader in readers]

    def close_empty(self) -> None:
        """Close the lists whose last reader has gone, as a group does."""
        for body, permit, readers in self.lists:
            if not body.closed and all(reader.left for reader in readers):
                body.close()
                permit.release()
                assert permit.released

    async def time_passes(self) -> None:
        """Let the judge look for half of a burst and longer; a sleep would wait for real sockets."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for _ in range(HALF_BURST_SWEEPS):
            loop.stand_still(SWEEP_SECONDS)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def check(self) -> None:
        assert self.space.held <= self.space.limit
        assert counted(self.counters, "spill_read_back_bytes") >= 0
        for body, permit, _ in self.lists:
            if body.file is not None:
                assert permit.released, "a list on disk holds no memory"

    async def end(self) -> None:
        if self.waiter is not None and not self.waiter.cancel():
            self.waiter.result().release()
        for reader in self.all_readers:
            reader.leave()
        self.close_empty()
        self.disk.faults.clear()
        for _ in range(10):
            # A move that has just begun has no call yet.
            await asyncio.sleep(0)
        while self.writers.calls or self.readers.calls:
            await self.writers.finish()
            await self.readers.finish()
        assert (self.spill.busy, self.space.held, self.space.unwritten, self.direct.held) == (0, 0, 0, 0)
        assert (self.disk.files, counted(self.counters, "spill_read_back_bytes")) == ({}, 0)
        await self.spill.close()


ACTIONS = ["begin", "take", "leave", "wait", "sweep", "write", "read", "fault", "mend"]
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(1, 300_000)), max_size=60)
FAULTS: list[tuple[str, int]] = [
    ("write", errno.ENOSPC), ("create", errno.EMFILE), ("read", errno.EIO), ("room", errno.EIO),
]  # fmt: skip


async def act(world: World, action: str, number: int, count: int) -> None:
    reader = world.all_readers[number]
    on: dict[str, Callable[[], object]] = {
        "begin": reader.begin,
        "take": lambda: reader.take(count),
        "leave": reader.leave,
        "fault": lambda: world.disk.fail(*FAULTS[number]),
        "mend": world.disk.faults.clear,
    }
    if action == "wait" and world.waiter is None:
        world.waiter = asyncio.get_running_loop().create_task(world.direct.acquire(10 * MIB))
        await asyncio.sleep(0)
    elif action == "sweep":
        await world.time_passes()
    elif action in ("write", "read"):
        workers = world.writers if action == "write" else world.readers
        await workers.go_on(min(1 + number, len(workers.calls)))
    elif action in on and not (reader.left and action in ("begin", "take")):
        on[action]()


@given(STEPS)
@settings(deadline=None)
def test_every_reader_gets_its_bytes_and_everything_is_given_back(steps: list[tuple[str, int, int]]) -> None:
    async def main() -> None:
        world = World()
        for action, number, count in steps:
            if action == "take" and world.all_readers[number] not in world.all_readers[number].body.readers:
                continue
            await act(world, action, number, count)
            world.close_empty()
            world.check()
        await world.end()

    run_virtual(main())


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=20)
def test_readers_that_go_on_have_all_of_their_lists_in_the_end(seed: int) -> None:
    async def main() -> None:
        world = World()
        await act(world, "wait", 0, 1)
        for reader in world.all_readers:
            reader.begin()
        bits = seed
        for _ in range(2000):
            if all(reader.position == reader.body.size for reader in world.all_readers):
                break
            bits = (bits * 6364136223846793005 + 1442695040888963407) % 2**64
            choice, number = bits >> 60, (bits >> 50) % 4
            if choice < 3:
                await act(world, "sweep", 0, 1)
            elif choice < 9:
                world.all_readers[number].take(1 + (bits >> 20) % 200_000)
            else:
                await act(world, "write" if choice < 12 else "read", 3, 1)
            world.check()
        else:
            raise AssertionError([(reader.position, reader.body.size) for reader in world.all_readers])
        await world.end()

    run_virtual(main())
