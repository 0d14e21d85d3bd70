"""Test the deadlines: one timer for all, exact moments, no memory of those who have gone."""

import asyncio
from collections.abc import Callable

import pytest

from limiter.deadlines import Deadlines
from limiter.fair_line import FairLine
from limiter.permit import AcquireWaiter, Waiter
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import semaphore


class Watched:
    """Deadlines over a line; write down who expired when, and do `on_expire` then."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.expired: list[tuple[int, float]] = []
        self.line: FairLine[AcquireWaiter] = FairLine()
        self.deadlines = Deadlines(clock, self._expire)
        self.on_expire: Callable[[], None] = lambda: None

    def add(self, size: int, seconds: float) -> AcquireWaiter:
        now = self.clock.time()
        owner = semaphore(1, self.clock)
        waiter = AcquireWaiter(owner, asyncio.get_running_loop(), size, now, seconds, None)
        self.line.push((), waiter)
        self.deadlines.watch(waiter)
        return waiter

    def leave(self, waiter: AcquireWaiter) -> None:
        self.line.remove(waiter)
        self.deadlines.forget(waiter)

    def _expire(self, waiter: Waiter, now: float) -> None:
        assert isinstance(waiter, AcquireWaiter)
        self.line.remove(waiter)
        self.expired.append((waiter.size, now - 1000.0))
        self.on_expire()


@pytest.fixture
def watched(clock: ManualClock) -> Watched:
    return Watched(clock)


async def test_those_who_have_gone_are_never_the_majority(watched: Watched) -> None:
    watched.add(0, 1.0)
    waiters = [watched.add(size, 25.0) for size in range(1, 1000)]
    for left, waiter in enumerate(waiters[:-1], 1):
        watched.leave(waiter)
        assert len(watched.deadlines) <= 2 * (1000 - left)
    watched.clock.advance(1.0)
    assert len(watched.deadlines) == len(watched.line) == 1


async def test_those_who_have_gone_are_not_the_majority_after_others_expired(watched: Watched) -> None:
    for size in range(6):
        watched.add(size, 1.0)
    for waiter in [watched.add(size, 9.0) for size in range(6)][:5]:
        watched.leave(waiter)
    watched.clock.advance(2.0)
    assert len(watched.expired) == 6
    assert len(watched.deadlines) == len(watched.line) == 1


class CoarseClock(ManualClock):
    """A clock that fires a little before the moment asked for, as loops do within their resolution."""

    def time(self) -> float:
        return super().time() - 1e-6


async def test_timer_that_fires_a_little_early_counts_as_on_time() -> None:
    watched = Watched(CoarseClock(1000.0))
    watched.add(1, 5.0)
    watched.add(2, 6.0)
    watched.clock.advance(4.9999995)
    assert [size for size, _ in watched.expired] == [1]
    watched.clock.advance(1.0)
    assert [size for size, _ in watched.expired] == [1, 2]


async def test_expiring_one_may_let_others_leave(watched: Watched) -> None:
    waiters = [watched.add(size, 1.0) for size in range(10)]

    def all_leave() -> None:
        for waiter in waiters:
            if waiter.queue is not None:
                watched.leave(waiter)

    watched.on_expire = all_leave
    watched.clock.advance(1.0)
    assert (len(watched.expired), len(watched.deadlines)) == (1, 0)


async def test_a_waiter_whose_end_raises_keeps_none_of_the_others_waiting(watched: Watched) -> None:
    for size in range(4):
        watched.add(size, 1.0 + size)

    def fails_once() -> None:
        watched.on_expire = lambda: None
        raise ValueError("its own end")

    watched.on_expire = fails_once
    with pytest.raises(ValueError, match="its own end"):
        watched.clock.advance(1.0)
    watched.clock.advance(10.0)
    assert watched.expired == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]
