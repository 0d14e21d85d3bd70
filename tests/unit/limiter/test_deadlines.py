"""Test the deadlines: one timer for all, exact moments, no memory of those who have gone."""

import asyncio
from typing import cast

import pytest

from limiter.deadlines import NEVER, Deadlines
from limiter.permit import AcquireWaiter, Waiter
from limiter.queue import WaiterQueue
from tests.support.loops.clock import ManualClock


class Watched:
    """Deadlines over a queue; write down who expired when."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.expired: list[tuple[int, float]] = []
        self.queue: WaiterQueue[AcquireWaiter] = WaiterQueue(self.leave)
        self.deadlines = Deadlines(clock, self._expire)

    def add(self, size: int, seconds: float) -> AcquireWaiter:
        now = self.clock.time()
        waiter = AcquireWaiter(asyncio.get_running_loop(), size, now, now + seconds, None)
        self.queue.push(waiter)
        self.deadlines.watch(waiter)
        return waiter

    def leave(self, waiter: AcquireWaiter) -> None:
        self.queue.remove(waiter)
        self.deadlines.forget(waiter)

    def _expire(self, waiter: Waiter, now: float) -> None:
        assert isinstance(waiter, AcquireWaiter)
        self.queue.remove(waiter)
        self.expired.append((waiter.size, now))


@pytest.fixture
def watched(clock: ManualClock) -> Watched:
    return Watched(clock)


async def test_each_expires_at_its_own_moment_whatever_the_order(watched: Watched) -> None:
    for size, seconds in ((1, 5.0), (2, 1.0), (3, 3.0), (4, 1.0)):
        watched.add(size, seconds)
    watched.clock.advance(10.0)
    moments = [(size, now - 1000.0) for size, now in watched.expired]
    assert sorted(moments[:2]) == [(2, 1.0), (4, 1.0)]
    assert moments[2:] == [(3, 3.0), (1, 5.0)]
    assert len(watched.deadlines) == 0
    assert watched.clock.pending == 0


async def test_there_is_one_timer_however_many_wait(watched: Watched) -> None:
    for size in range(100):
        watched.add(size, 50.0 - size * 0.1)
    assert watched.clock.pending == 1


async def test_those_who_have_gone_are_not_the_majority_after_others_expired(watched: Watched) -> None:
    leaving = [watched.add(size, 10.0) for size in range(2)]
    watched.add(2, 10.0)
    watched.add(3, 1.0)
    for waiter in leaving:
        waiter.cancel()
    watched.clock.advance(1.0)
    assert [size for size, _ in watched.expired] == [3]
    assert len(watched.deadlines) <= 2


async def test_those_who_have_gone_are_never_the_majority(watched: Watched) -> None:
    stays = watched.add(0, 1.0)
    waiters = [watched.add(size, 25.0) for size in range(1, 1000)]
    for left, waiter in enumerate(waiters, 1):
        watched.leave(waiter)
        assert len(watched.deadlines) <= 2 * (1000 - left)
    assert len(watched.deadlines) <= 2
    watched.leave(stays)
    assert len(watched.deadlines) == 0


async def test_those_who_have_gone_are_never_the_majority_when_others_expire(watched: Watched) -> None:
    early = [watched.add(size, 1.0) for size in range(6)]
    late = [watched.add(size, 9.0) for size in range(6)]
    for waiter in late[:5]:
        watched.leave(waiter)
    assert len(watched.deadlines) <= 2 * len(watched.queue)
    watched.clock.advance(2.0)
    assert len(watched.expired) == len(early)
    assert len(watched.deadlines) == len(watched.queue) == 1


async def test_one_that_left_does_not_expire_and_the_next_does(watched: Watched) -> None:
    first = watched.add(1, 1.0)
    for size in (2, 3, 4):
        watched.add(size, 2.0)
    watched.leave(first)
    watched.clock.advance(1.5)
    assert watched.expired == []
    watched.clock.advance(0.5)
    assert sorted(size for size, _ in watched.expired) == [2, 3, 4]


async def test_one_without_a_deadline_is_not_kept(watched: Watched) -> None:
    waiter = watched.add(1, NEVER)
    assert len(watched.deadlines) == 0
    assert watched.clock.pending == 0
    watched.leave(waiter)
    assert len(watched.deadlines) == 0


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
    assert watched.clock.pending == 0


async def test_expiring_one_may_let_others_leave(clock: ManualClock) -> None:
    watched = Watched(clock)
    waiters: list[AcquireWaiter] = []

    def expire(waiter: Waiter, now: float) -> None:
        watched.expired.append((waiter.size, now))
        for other in waiters:
            if other.queue is not None:
                watched.queue.remove(other)
                if other is not waiter:
                    watched.deadlines.forget(other)

    watched.deadlines = Deadlines(clock, expire)
    waiters.extend(watched.add(size, 1.0) for size in range(10))
    clock.advance(1.0)
    assert len(watched.expired) == 1
    assert len(watched.deadlines) == 0


async def test_close_keeps_no_timer(watched: Watched) -> None:
    watched.add(1, 1.0)
    watched.deadlines.close()
    assert watched.clock.pending == 0
    watched.clock.advance(5.0)
    assert watched.expired == []


async def test_a_waiter_whose_end_raises_keeps_none_of_the_others_waiting(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in range(4):
        watched.add(size, 1.0 + size)
    expire = watched.deadlines._expire

    def fails_once(waiter: Waiter, now: float) -> None:
        monkeypatch.setattr(watched.deadlines, "_expire", expire)
        watched.queue.remove(cast(AcquireWaiter, waiter))
        raise ValueError("its own end")

    monkeypatch.setattr(watched.deadlines, "_expire", fails_once)
    with pytest.raises(ValueError, match="its own end"):
        watched.clock.advance(1.0)
    watched.clock.advance(10.0)
    assert [(size, now - 1000.0) for size, now in watched.expired] == [(1, 2.0), (2, 3.0), (3, 4.0)]
