import asyncio
import io
import json
from collections.abc import Hashable, Iterable
from typing import Any

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.net.write_watch import (
    EVICTIONS_A_TURN,
    PROOF_BYTES,
    QUICK_SECONDS,
    QUICK_SEEN_SECONDS,
    MostOwed,
    WriteLimits,
    WriteProgress,
    WriteWatch,
)
from proxy.telemetry.limiter_metrics import LimiterMetrics
from tests.support.cores import core_of
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import virtual
from tests.support.proxies.counted import counted

KIB = 1024
LEAST = 32 * KIB
STALL_SECONDS = 20.0
LISTS = 1_000_000


class Reader:
    """A client that takes `rate` bytes each second, and 16 at first, into its buffer."""

    progress: WriteProgress | None = None
    client = "192.0.2.1:5000"

    def __init__(self, books: "Books", rate: float = 0, permit: Permit | None = None) -> None:
        self.books = books
        self.rate = rate
        self.permit = permit
        self.unsent = 50_000_000
        self.read = 0.0
        self.end: str | None = None
        self.breaks = False
        self.holds_up_a_list = False
        self.disk_bytes = 0
        self.goes_to_disk = False
        self.owed: tuple[int, int] | None = None
        self.held_up: list[tuple[Hashable, int]] = []
        self.reads = False
        # What the list in progress would owe without the share that it has; 0: it has none.
        self.share = 0
        books.readers.append(self)
        books.watch.add(self)
        assert self.progress is not None
        self.progress.handed_bytes = self.unsent

    def live(self, seconds: float) -> None:
        self.read += self.rate * seconds

    @property
    def waiting(self) -> bool:
        return self.end is None and self.unsent > 0

    @property
    def holds_memory(self) -> bool:
        return self.permit is not None

    def sample(self, progress: WriteProgress, now: float) -> None:
        if self.breaks:
            raise RuntimeError("a sample that fails")
        acknowledged = min(self.unsent, int(self.read) + 16)
        left = self.unsent - acknowledged
        progress.note(now, left - left // 3, left // 3)

    def give_back(self, most: int) -> int:
        if self.share > most:
            return 0
        self.share, given = 0, self.share
        self.owed = (id(self), given) if given else self.owed
        return given

    def evict(self, cause: DisconnectCause) -> int:
        self._leave(cause)
        return 1000

    def crashed(self, error: BaseException) -> None:
        self._leave(f"crashed: {error}")

    def _leave(self, end: str) -> None:
        assert self.end is None
        self.end = end
        if self.permit is not None:
            # As a connection's task does: not at once, but as soon as it runs.
            asyncio.get_running_loop().call_soon(self.permit.release)


class Books:
    """A watch over readers, the direct limiter they hold memory of, and a clock that a test moves."""

    def __init__(
        self,
        stall_seconds: float = STALL_SECONDS,
        min_bytes_per_second: int = LEAST,
        most_owed: MostOwed = lambda: (None, None, False),
    ) -> None:
        self.clock = ManualClock()
        self.counters = Counters()
        waits = LimiterMetrics(self.clock.time)
        self.direct, self.heap = (
            AsyncSemaphore(name, limit, max_queue=0, timeout_seconds=1000.0, clock=self.clock, observer=waits.waited)
            for name, limit in (("direct", 3 * LISTS), ("heap", LISTS))
        )
        self.heap = AsyncSemaphore(
            "heap", LISTS, max_queue=0, timeout_seconds=1000.0, clock=self.clock, observer=waits.waited
        )
        self._file = io.BytesIO()
        core = core_of(counters=self.counters, log=open_log("info", "json", self._file))
        self.watch = WriteWatch(core, self.direct, self.heap, lambda: waits.served_waiters, most_owed, None)
        self.watch.apply(WriteLimits(stall_seconds, min_bytes_per_second))
        self.readers: list[Reader] = []

    def reader(self, rate: float = 0, memory: int = LISTS) -> Reader:
        permit = self.direct.try_acquire(memory) if memory else None
        assert permit is not None or not memory
        return Reader(self, rate, permit)

    def wait_for_memory(self, size: int) -> "asyncio.Task[Permit]":
        return asyncio.get_running_loop().create_task(self.direct.acquire(size))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            await asyncio.sleep(0)
            await self.watch.sweep(self.clock.time())
            self.clock.advance(1)
            for reader in self.readers:
                reader.live(1)

    async def ends_after(self, reader: Reader, most_seconds: int = 100) -> int:
        for second in range(most_seconds):
            await self.run(1)
            if reader.end is not None:
                return second
        raise AssertionError(f"expected an end within {most_seconds} s")


def ends(readers: Iterable[Reader]) -> list[str | None]:
    return [reader.end for reader in readers]


class TestLines:
    @virtual
    async def test_a_sweep_writes_one_line_for_all_that_it_closed_for_one_cause(self) -> None:
        books = Books()
        readers = [books.reader(memory=0) for _ in range(50)]
        await books.ends_after(readers[0])
        await books.run(3)
        (line,) = books.lines
        told = {name: line[name] for name in ("level", "cause", "change", "client", "bytes", "evictions")}
        assert told == {
            "level": "warning",
            "cause": "write_stalled",
            "change": "topicListWriteStallTimeoutMillis",
            "client": "192.0.2.1:5000",
            "bytes": 50_000,
            "evictions": 50,
        }


class TestStalls:
    @virtual
    async def test_the_timeout_starts_anew_with_each_byte(self) -> None:
        books = Books()
        reader = books.reader(rate=1 / (STALL_SECONDS - 2))
        await books.run(1000)
        assert reader.end is None
        reader.rate = 0
        assert await books.ends_after(reader) <= STALL_SECONDS
        assert reader.end == DisconnectCause.WRITE_STALLED

    @virtual
    async def test_time_in_which_the_proxy_stood_still_does_not_count(self) -> None:
        books = Books()
        reader = books.reader()
        await books.run(5)
        books.clock.advance(3600)
        await books.run(10)
        assert reader.end is None
        assert await books.ends_after(reader) < STALL_SECONDS

    @virtual
    async def test_who_has_taken_all_it_was_given_owes_nothing(self) -> None:
        books = Books()
        reader = books.reader(rate=1e9)
        await books.run(1)
        # Nothing is left in the buffers, but its body goes on: what is late is the proxy's own.
        reader.unsent = int(reader.read) or 1
        await books.run(100)
        assert reader.end is None


class TestSlowReaders:
    @virtual
    async def test_who_keeps_heap_memory_from_others_goes_when_these_wait(self) -> None:
        books = Books()
        harmless, reader = books.reader(rate=100), books.reader(rate=100)
        reader.holds_up_a_list = True
        held = books.heap.try_acquire(LISTS)
        assert held is not None
        await books.run(20)
        waiter = asyncio.get_running_loop().create_task(books.heap.acquire(LISTS))
        await books.run(2)
        assert [harmless.end, reader.end] == [None, "reads_too_slowly"]
        held.release()
        (await waiter).release()


class TestEnough:
    @virtual
    async def test_the_slowest_goes_and_the_others_stay_once_one_was_served(self) -> None:
        books = Books()
        share = 3 * LISTS // 12
        readers = [books.reader(rate=1000 + 700 * number % 1200, memory=share) for number in range(12)]
        waiter = books.wait_for_memory(share)
        await books.run(12)
        assert [reader.rate for reader in readers if reader.end] == [1000]
        (await waiter).release()

    @virtual
    async def test_as_many_go_as_the_one_who_waits_needs(self) -> None:
        books = Books()
        readers = [books.reader(rate=rate) for rate in (3000, 1000, 2000)]
        waiter = books.wait_for_memory(2 * LISTS)
        await books.run(12)
        slow = DisconnectCause.READS_TOO_SLOWLY
        assert ends(readers) == [None, slow, slow]
        (await waiter).release()


class TestListsBehindThoseThatAreOwed:
    """The heap memory has room for four lists, and one is what those that stand may hold of it."""

    def stand(self, count: int, most: int | None = LISTS // 4, least: int = LEAST) -> tuple[Books, list[Reader]]:
        books = Books(min_bytes_per_second=least, most_owed=lambda: (None, most, False))
        readers = [books.reader(memory=LISTS // 4) for _ in range(count)]
        for number, reader in enumerate(readers):
            reader.held_up = [(number, LISTS // 4)]
        return books, readers

    def wait_for_heap(self, books: Books) -> tuple[Permit, "asyncio.Task[Permit]"]:
        held = books.heap.try_acquire(LISTS)
        assert held is not None
        return held, asyncio.get_running_loop().create_task(books.heap.acquire(LISTS))

    @virtual
    async def test_those_that_stood_longest_go_until_a_part_is_left(self) -> None:
        books, (last, first, second) = self.stand(3)
        last.rate = second.rate = PROOF_BYTES
        await books.run(2)
        second.rate = 0
        await books.run(1)
        last.rate = 0
        held, waiter = self.wait_for_heap(books)
        await books.run(4)
        slow = DisconnectCause.READS_TOO_SLOWLY
        assert ends([last, first, second]) == [None, slow, slow]
        held.release()
        (await waiter).release()

    @virtual
    async def test_they_stay_while_nobody_waits_for_heap_memory_or_less_is_held(self) -> None:
        idle, alone = self.stand(3), self.stand(1)
        await idle[0].run(8)
        held, waiter = self.wait_for_heap(alone[0])
        await alone[0].run(8)
        assert ends([*idle[1], *alone[1]]) == [None] * 4
        held.release()
        (await waiter).release()

    @pytest.mark.parametrize(("most", "least"), [(None, LEAST), (LISTS // 4, 0)])
    @virtual
    async def test_without_the_rule_they_stay(self, most: int | None, least: int) -> None:
        books, readers = self.stand(3, most, least)
        held, waiter = self.wait_for_heap(books)
        await books.run(8)
        assert ends(readers) == [None] * 3
        held.release()
        (await waiter).release()


class TestTheWatch:
    @virtual
    async def test_a_writer_whose_sample_fails_harms_nobody_else(self) -> None:
        books = Books()
        broken, healthy = books.reader(rate=1), books.reader(rate=1)
        broken.breaks = True
        await books.run(2)
        assert broken.end == "crashed: a sample that fails"
        assert healthy.end is None
        assert counted(books.counters, "client_writers") == 1

    @virtual
    async def test_the_gauges_say_who_is_written_to_and_who_stands_still(self) -> None:
        books = Books(stall_seconds=0)
        books.reader(rate=1000)
        stalled = books.reader()
        await books.run(5)
        counters = books.counters
        assert (counted(counters, "client_writers"), counted(counters, "client_stalled_readers")) == (2, 1)
        assert counted(counters, "client_writers_kernel_bytes") > stalled.unsent // 3
        stalled.rate = 1000
        await books.run(2)
        assert counted(books.counters, "client_stalled_readers") == 0


# --- clients that move, and take less than a quick reader does ---------------------------------------

SLOW = DisconnectCause.READS_TOO_SLOWLY
QUICK_RATE = PROOF_BYTES / QUICK_SECONDS
SIZE = LISTS // 2


def paced(rate: float, seconds: int = 6) -> WriteProgress:
    """Give the progress of a client of which the kernel always has bytes."""
    progress = WriteProgress()
    progress.handed_bytes = 50_000_000
    for second in range(seconds + 1):
        progress.note(second, 0, progress.handed_bytes - int(rate * second))
    return progress


def test_a_client_that_takes_less_than_a_quick_one_has_a_pace_and_a_quick_one_has_none() -> None:
    assert paced(QUICK_RATE - KIB).pace == QUICK_RATE - KIB
    assert paced(QUICK_RATE).pace is None
    assert paced(1, seconds=1).pace is None, "it is too early"


class Scene:
    """Readers that owe a list each, of which half of one may be owed, and somebody who waits for memory."""

    def __init__(self, *rates: float, least: int = LEAST) -> None:
        self.books = Books(min_bytes_per_second=least, most_owed=lambda: (SIZE, None, self.books.direct.short))
        self.readers = [self.books.reader(rate, memory=SIZE) for rate in rates]
        for number, reader in enumerate(self.readers):
            reader.owed = number, SIZE

    async def while_others_wait(self, seconds: int = 6) -> list[str | None]:
        taken: Permit | None = self.books.direct.try_acquire(self.books.direct.available)
        waiter = asyncio.get_running_loop().create_task(self.books.direct.acquire(3 * LISTS))
        await self.books.run(seconds)
        found = ends(self.readers)
        waiter.cancel()
        assert taken is not None
        taken.release()
        return found


@pytest.mark.threat("slow-trickle-readers")
@virtual
async def test_the_slowest_go_first_until_their_part_is_left() -> None:
    scene = Scene(LEAST + 9 * KIB, LEAST + KIB, LEAST + 5 * KIB)
    scene.books.watch.saw_quick()
    assert await scene.while_others_wait() == [None, SLOW, SLOW]


@pytest.mark.threat("slow-trickle-readers")
@virtual
async def test_those_that_keep_to_the_least_rate_stay_where_no_quick_client_comes() -> None:
    scene = Scene(LEAST + KIB, LEAST + KIB, LEAST - KIB)
    assert await scene.while_others_wait(seconds=9) == [None, None, SLOW]
    scene = Scene(LEAST + KIB, LEAST + KIB)
    scene.books.watch.saw_quick()
    await scene.books.run(int(QUICK_SEEN_SECONDS) + 1)
    assert await scene.while_others_wait() == [None, None]


@pytest.mark.parametrize("spared", ["nobody waits", "on disk", "quick", "rule is off"])
@virtual
async def test_they_stay_where_there_is_no_need(spared: str) -> None:
    rate = QUICK_RATE + KIB if spared == "quick" else LEAST + KIB
    scene = Scene(rate, rate, rate, least=0 if spared == "rule is off" else LEAST)
    scene.books.watch.saw_quick()
    for reader in scene.readers:
        reader.goes_to_disk = spared == "on disk"
    if spared == "nobody waits":
        await scene.books.run(9)
    else:
        await scene.while_others_wait()
    assert ends(scene.readers) == [None] * 3


@virtual
async def test_shares_go_on_to_those_that_wait_until_all_that_may_be_owed_is_and_nobody_is_closed() -> None:
    scene = Scene(*[QUICK_RATE + KIB] * 6)
    proven, on_disk, *others = scene.readers
    proven.reads, proven.share = True, SIZE
    on_disk.goes_to_disk, on_disk.owed, on_disk.share = True, None, SIZE
    for reader in others:
        reader.owed, reader.share = None, SIZE // 2
    await scene.books.run(1)
    assert all(reader.share for reader in others), "nobody waits"
    assert await scene.while_others_wait() == [None] * 6
    assert [bool(reader.share) for reader in others].count(False) == 2
    assert proven.share
    assert on_disk.share, "its list leaves memory by itself"


@virtual
async def test_who_stands_with_less_than_may_be_owed_stays_while_lists_of_others_go_on() -> None:
    scene = Scene(0, QUICK_RATE + KIB)
    stands, moves = scene.readers
    stands.owed, moves.owed = (0, SIZE * 3 // 4), (1, SIZE // 2)
    assert await scene.while_others_wait() == [None] * 2


@virtual
async def test_a_list_larger_than_what_may_still_be_owed_stays_in_its_share() -> None:
    scene = Scene(QUICK_RATE + KIB, QUICK_RATE + KIB)
    moves, large = scene.readers
    moves.owed, large.owed, large.share = (0, SIZE // 2), None, SIZE * 3 // 4
    await scene.while_others_wait()
    assert large.share


@virtual
async def test_no_iteration_of_the_loop_closes_more_than_a_few() -> None:
    books = Books(most_owed=lambda: (None, 0, False))
    readers = [books.reader(memory=0) for _ in range(3 * EVICTIONS_A_TURN)]
    for number, reader in enumerate(readers):
        reader.held_up = [(number, KIB)]
    await books.run(4)
    held = books.heap.try_acquire(LISTS)
    assert held is not None
    waiter = asyncio.get_running_loop().create_task(books.heap.acquire(LISTS))
    sweep = asyncio.get_running_loop().create_task(books.run(1))
    most = gone = 0
    while not sweep.done():
        await asyncio.sleep(0)
        now_gone = len(readers) - ends(readers).count(None)
        most, gone = max(most, now_gone - gone), now_gone
    assert (gone, most) == (len(readers), EVICTIONS_A_TURN)
    waiter.cancel()


# --- the right to write a list to one client, and the promise of it -----------------------------------
