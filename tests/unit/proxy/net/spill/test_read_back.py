"""The pool between the disk and the sockets: bounded, in order, and empty when nobody reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.core.counters import Counters
from proxy.net.spill.file import SpillFile
from proxy.net.spill.read_back import READ_SECONDS, DiskRead, ReadBack
from proxy.net.spill.space import SpaceReservation, SpillSpace
from tests.support.loops.loops import virtual
from tests.support.proxies.counted import counted
from tests.support.sockets.fake_disk import FakeDisk, StandingWorkers

KIB = 1024
DATA = bytes(range(256)) * 4 * KIB


class Bench:
    """One file on a fake disk, and a pool of four reads."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.disk, self.workers = FakeDisk(), StandingWorkers()
        self.space = SpillSpace(100 * KIB * KIB, 10, self.counters)
        self.errors: list[BaseException] = []
        loop = asyncio.get_running_loop()
        self.pool = ReadBack(loop, self.workers, self.counters, self.errors.append, limit=4 * KIB)
        self.closed = 0
        self.arrived: list[tuple[str, bytes | None]] = []

    async def file(self) -> SpillFile:
        reservation = self.space.reserve(len(DATA), "key")
        assert isinstance(reservation, SpaceReservation)
        file = SpillFile(self.disk, self.space, reservation, self.workers, 0, self._closed)
        file.create(self.workers)
        await self.workers.go_on()
        file.write(self.workers, memoryview(DATA), 0)
        await self.workers.go_on()
        return file

    def read(self, file: SpillFile, position: int, name: str = "a", count: int = KIB) -> DiskRead:
        return self.pool.read(file, position, count, lambda data: self.arrived.append((name, data)))

    def _closed(self) -> None:
        self.closed += 1


@asynccontextmanager
async def bench() -> AsyncIterator[tuple[Bench, SpillFile]]:
    on = Bench()
    file = await on.file()
    yield on, file
    file.close()
    await on.workers.finish()
    assert (len(on.pool), on.pool.held_bytes, on.space.held, on.space.files, on.closed) == (0, 0, 0, 0, 1)
    assert on.disk.files == {}


@virtual
async def test_bytes_arrive_and_count_until_they_are_given_back() -> None:
    async with bench() as (on, file):
        read = on.read(file, 300)
        await on.workers.go_on()
        assert on.arrived == [("a", DATA[300 : 300 + KIB])]
        assert on.pool.held_bytes == KIB
        read.end()
        read.end()
        assert counted(on.counters, "spill_read_bytes") == KIB


@virtual
async def test_no_more_is_read_than_the_pool_holds_and_the_rest_in_order() -> None:
    async with bench() as (on, file):
        reads = [on.read(file, 0, name) for name in "abcdef"]
        assert len(on.workers.calls) == 4
        await on.workers.go_on(4)
        assert len(on.workers.calls) == 0, "four are on their way to sockets"
        reads[2].end()
        assert len(on.workers.calls) == 1
        reads[0].end()
        await on.workers.go_on(2)
        assert [name for name, _ in on.arrived] == list("abcdef")
        for read in reads:
            read.end()


@virtual
async def test_a_file_is_closed_when_the_last_thread_has_answered() -> None:
    async with bench() as (on, file):
        read = on.read(file, 0)
        read.end()
        file.close()
        assert len(on.workers.calls) == 1, "nothing is closed under a thread that reads"
        assert on.space.files == 1
        await on.workers.go_on()
        assert on.space.files == 1, "the space is not free before the file is closed"
        await on.workers.go_on()
        assert on.space.files == 0


@virtual
async def test_a_disk_that_fails_says_so_once_and_holds_nothing() -> None:
    async with bench() as (on, file):
        on.disk.fail("read", 5)
        read = on.read(file, 0)
        await on.workers.go_on()
        assert on.arrived == [("a", None)]
        assert (counted(on.counters, "spill_read_errors"), on.pool.held_bytes, len(on.errors)) == (1, 0, 1)
        read.end()


@virtual
async def test_a_disk_that_does_not_answer_fails_the_reads_and_keeps_their_bytes_until_it_does() -> None:
    async with bench() as (on, file):
        reads = [on.read(file, 0, name) for name in "abcde"]
        await asyncio.sleep(READ_SECONDS - 1)
        assert on.arrived == []
        await asyncio.sleep(2)
        assert sorted(on.arrived) == [(name, None) for name in "abcde"]
        for read in reads:
            read.end()
        assert on.pool.held_bytes == 4 * KIB, "four threads may still write there"
        await on.workers.finish()
        assert (on.pool.held_bytes, counted(on.counters, "spill_read_errors")) == (0, 5)
