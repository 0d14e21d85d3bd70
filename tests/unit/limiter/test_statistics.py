"""What is seen of those who wait: their order, their owners, their times; looking changes nothing."""

import asyncio

import pytest

from limiter import AsyncSemaphore
from limiter.permit import AcquireWaiter
from limiter.statistics import WaiterStatistics
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import alive, semaphore, settle


@pytest.fixture(params=[False, True], ids=["fifo", "turns"])
def limiter(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncSemaphore:
    return semaphore(10, clock, share_by_key=request.param)


async def waiting(
    limiter: AsyncSemaphore, *asked: tuple[object, int], about: str | None = None
) -> list["asyncio.Task[object]"]:
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[object]] = [loop.create_task(limiter.acquire(n, key=key, about=about)) for key, n in asked]
    await settle()
    return tasks


def readings(limiter: AsyncSemaphore, count: int = 100, at_once: int = 3) -> list[WaiterStatistics]:
    return [waiter for step in limiter.waiters(count, at_once) for waiter in step]


def seen(limiter: AsyncSemaphore, count: int = 100) -> list[tuple[object, int]]:
    return [(waiter.key, waiter.size) for waiter in readings(limiter, count)]


async def test_growers_are_seen_before_newcomers_with_their_owners_and_times(
    limiter: AsyncSemaphore, clock: ManualClock
) -> None:
    first, second = await limiter.acquire(5, key="x"), await limiter.acquire(5, key="y")
    assert first.try_update(8)
    await waiting(limiter, ("a", 3), about="a list")
    clock.advance(4.0)
    growing = asyncio.get_running_loop().create_task(second.update(9))
    await waiting(limiter, ("b", 2))
    assert readings(limiter, 2) == [
        WaiterStatistics("y", None, 9, 0.0, 25.0, grows=True),
        WaiterStatistics("a", "a list", 3, 4.0, 21.0, grows=False),
    ]
    assert readings(limiter, 0) == []
    growing.cancel()
    assert seen(limiter) == [("a", 3), ("b", 2)]


async def test_with_turns_the_first_of_each_key_come_before_the_second_of_any_and_those_at_their_cap_last(
    clock: ManualClock,
) -> None:
    limiter = semaphore(10, clock, share_by_key=True, key_cap_percent=50, kept_of=2)
    await limiter.acquire(5, key="a")
    await limiter.acquire(5, key="b")
    asked = [("a", 2), ("c", 1), ("c", 2), ("c", 3), ("d", 4), ("e", 5), ("e", 6)]
    await waiting(limiter, *asked)
    before = limiter.statistics()
    assert before.keys_capped == 1
    assert seen(limiter) == [("c", 1), ("d", 4), ("e", 5), ("a", 2), ("c", 2), ("e", 6), ("c", 3)]
    assert seen(limiter, 2) == [("c", 1), ("d", 4)]
    assert limiter.statistics() == before


async def test_who_comes_or_goes_between_two_steps_changes_nothing_for_the_others(
    limiter: AsyncSemaphore,
) -> None:
    held = await limiter.acquire(10, key="holder")
    tasks = await waiting(limiter, *((f"k{number}", 10 + number) for number in range(8)))
    steps = limiter.waiters(7, 2)
    shown = [[waiter.size for waiter in next(steps)]]
    # One that was shown, the next in line and one of the last leave, one is served, one comes.
    for number in (1, 2, 6):
        tasks[number].cancel()
    held.release()
    await waiting(limiter, ("new", 99))
    shown += [[waiter.size for waiter in step] for step in steps]
    assert shown == [[10, 11], [13], [14, 15], []]


async def test_a_look_in_steps_keeps_nobody_alive(limiter: AsyncSemaphore) -> None:
    await limiter.acquire(10)
    before = alive(AcquireWaiter)
    tasks = await waiting(limiter, *((number % 4, 1) for number in range(7)))
    steps = limiter.waiters(6, 2)
    assert len(next(steps)) == 2
    assert alive(AcquireWaiter) - before == 7
    while tasks:
        tasks.pop().cancel()
    await settle()
    assert alive(AcquireWaiter) == before
    assert [list(step) for step in steps] == [[], []]
