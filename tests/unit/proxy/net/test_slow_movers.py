"""Clients that move, and take less than a quick reader does: what they hold is bounded while others wait."""

import asyncio

import pytest

from limiter.permit import Permit
from proxy.core.errors import DisconnectCause
from proxy.net.write_watch import EVICTIONS_A_TURN, PROOF_BYTES, QUICK_SECONDS, QUICK_SEEN_SECONDS, WriteProgress
from tests.support.loops.loops import run_virtual
from tests.unit.proxy.net.test_write_watch import KIB, LEAST, LISTS, Books, Bound, Reader, ends

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


def test_a_slow_client_is_quick_as_soon_as_it_takes_as_much_and_when_it_waits_for_the_proxy() -> None:
    progress, handed = paced(LEAST), 50_000_000
    taken = handed - progress.kernel_bytes
    progress.note(7, 0, handed - taken - PROOF_BYTES)
    assert progress.pace is None
    progress = paced(LEAST)
    progress.note(7, 0, 0)
    assert progress.pace is None


class Scene:
    """Readers that owe a list each, of which half of one may be owed, and somebody who waits for memory."""

    def __init__(self, *rates: float, least: int = LEAST) -> None:
        self.books = Books(min_bytes_per_second=least)
        self.books.watch.owed_bound = Bound(SIZE, None)
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
def test_the_slowest_go_first_until_their_part_is_left() -> None:
    async def main() -> None:
        scene = Scene(LEAST + 9 * KIB, LEAST + KIB, LEAST + 5 * KIB)
        scene.books.watch.saw_quick()
        assert await scene.while_others_wait() == [None, SLOW, SLOW]

    run_virtual(main())


@pytest.mark.threat("slow-trickle-readers")
def test_those_that_keep_to_the_least_rate_stay_where_no_quick_client_comes() -> None:
    async def main() -> None:
        scene = Scene(LEAST + KIB, LEAST + KIB, LEAST - KIB)
        assert await scene.while_others_wait(seconds=9) == [None, None, SLOW]
        scene = Scene(LEAST + KIB, LEAST + KIB)
        scene.books.watch.saw_quick()
        await scene.books.run(int(QUICK_SEEN_SECONDS) + 1)
        assert await scene.while_others_wait() == [None, None]

    run_virtual(main())


def test_those_that_stand_go_before_those_that_move() -> None:
    async def main() -> None:
        scene = Scene(LEAST + KIB, 0)
        scene.books.watch.saw_quick()
        assert await scene.while_others_wait() == [None, SLOW]

    run_virtual(main())


@pytest.mark.parametrize("spared", ["nobody waits", "on disk", "quick", "rule is off"])
def test_they_stay_where_there_is_no_need(spared: str) -> None:
    async def main() -> None:
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

    run_virtual(main())


def test_lists_behind_those_of_slow_clients_count_in_heap_memory() -> None:
    async def main() -> None:
        books = Books()
        books.watch.owed_bound = Bound(None, LISTS // 4)
        readers: list[Reader] = [books.reader(LEAST + number * KIB, memory=LISTS // 4) for number in (2, 1)]
        for number, reader in enumerate(readers):
            reader.held_up = [(number, LISTS // 4)]
        books.watch.saw_quick()
        held = books.heap.try_acquire(LISTS)
        waiter = asyncio.get_running_loop().create_task(books.heap.acquire(LISTS))
        await books.run(5)
        assert ends(readers) == [None, SLOW]
        waiter.cancel()
        assert held is not None

    run_virtual(main())


def test_no_iteration_of_the_loop_closes_more_than_a_few() -> None:
    async def main() -> None:
        books = Books()
        books.watch.owed_bound = Bound(None, 0)
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

    run_virtual(main())
