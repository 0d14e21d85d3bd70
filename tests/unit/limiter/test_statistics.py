"""What is seen of those who wait: their order, their owners, their times; looking changes nothing."""

import asyncio
from weakref import WeakSet

import pytest

from limiter import AsyncSemaphore
from limiter.charge import Charge
from limiter.permit import Permit
from limiter.statistics import WaiterStatistics
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import settle

BOTH = pytest.mark.parametrize("share_by_key", [False, True], ids=["fifo", "turns"])


def waiting(limiter: AsyncSemaphore, *asked: tuple[object, int]) -> list["asyncio.Task[object]"]:
    loop = asyncio.get_running_loop()
    return [loop.create_task(limiter.acquire(size, charge=Charge(key, f"about {key}"))) for key, size in asked]


async def end(limiter: AsyncSemaphore, tasks: list["asyncio.Task[object]"]) -> None:
    for task in tasks:
        task.cancel()
    await settle()
    assert not limiter.queue_size


def readings(limiter: AsyncSemaphore, count: int = 100, at_once: int = 3) -> list[WaiterStatistics]:
    return [waiter for step in limiter.waiters(count, at_once) for waiter in step]


def seen(limiter: AsyncSemaphore, count: int = 100) -> list[tuple[object, int]]:
    return [(waiter.key, waiter.size) for waiter in readings(limiter, count)]


async def test_in_one_line_the_first_come_are_the_first_seen(clock: ManualClock) -> None:
    limiter = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock)
    held = await limiter.acquire(10, key="holder")
    first = waiting(limiter, ("a", 3))
    await settle()
    clock.advance(4.0)
    others = waiting(limiter, ("b", 2), ("a", 1))
    await settle()
    assert seen(limiter) == [("a", 3), ("b", 2), ("a", 1)]
    assert seen(limiter, 2) == [("a", 3), ("b", 2)]
    (reading,) = readings(limiter, 1)
    assert (reading.about, reading.waited_seconds, reading.seconds_left, reading.grows) == ("about a", 4.0, 26.0, False)
    await end(limiter, [*first, *others])
    held.release()


async def test_who_holds_and_waits_to_grow_is_seen_before_newcomers(clock: ManualClock) -> None:
    limiter = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock)
    first, second = await limiter.acquire(5, key="x"), await limiter.acquire(5, key="y")
    assert first.try_update(8)
    loop = asyncio.get_running_loop()
    growing: list[asyncio.Task[object]] = [loop.create_task(second.update(9))]
    newcomers = waiting(limiter, ("a", 1))
    await settle()
    grower, newcomer = readings(limiter, 5)
    assert (grower.key, grower.size, grower.grows, grower.about) == ("y", 9, True, None)
    assert (newcomer.key, newcomer.grows) == ("a", False)
    await end(limiter, [*growing, *newcomers])
    first.release()
    second.release()


async def test_with_turns_the_first_of_each_key_come_before_the_second_of_any(clock: ManualClock) -> None:
    limiter = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock, share_by_key=True)
    held = await limiter.acquire(10, key="holder")
    tasks = waiting(limiter, ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6))
    await settle()
    before = limiter.statistics()
    assert seen(limiter) == [("a", 1), ("b", 4), ("c", 5), ("a", 2), ("c", 6), ("a", 3)]
    assert seen(limiter, 2) == [("a", 1), ("b", 4)]
    assert limiter.statistics() == before
    await end(limiter, tasks)
    held.release()


async def test_those_at_their_cap_are_seen_last(clock: ManualClock) -> None:
    limiter = AsyncSemaphore(
        "heap", 10, max_queue=0, timeout_seconds=30, clock=clock, share_by_key=True, key_cap_percent=50
    )
    held = [await limiter.acquire(5, key="a"), await limiter.acquire(5, key="b")]
    tasks = waiting(limiter, ("a", 2), ("c", 1))
    await settle()
    assert limiter.statistics().keys_capped == 1
    assert seen(limiter) == [("c", 1), ("a", 2)]
    await end(limiter, tasks)
    for permit in held:
        permit.release()


async def test_a_charge_says_what_it_holds(clock: ManualClock) -> None:
    limiter, charge = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock), Charge("a")
    assert charge.holding is None
    permit = await limiter.acquire(4, charge=charge)
    held: list[object] = [charge.holding]
    assert permit.try_update(7)
    held.append(charge.holding)
    permit.release()
    assert [*held, charge.holding] == [("heap", 4), ("heap", 7), None]


@pytest.mark.parametrize("count", [0, 1])
async def test_nobody_waits_where_nothing_is_asked(count: int, clock: ManualClock) -> None:
    assert readings(AsyncSemaphore("heap", 1, max_queue=0, timeout_seconds=0, clock=clock), count) == []


@BOTH
async def test_who_comes_or_goes_between_two_steps_changes_nothing_for_the_others(
    share_by_key: bool, clock: ManualClock
) -> None:
    limiter = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock, share_by_key=share_by_key)
    held = await limiter.acquire(10, key="holder")
    tasks = waiting(limiter, *((f"k{number}", 10 + number) for number in range(8)))
    await settle()
    steps = limiter.waiters(7, 2)
    shown = [[waiter.size for waiter in next(steps)]]
    # One that was shown, the next in line and one of the last leave, one is served, one comes.
    for number in (1, 2, 6):
        tasks[number].cancel()
    held.release()
    tasks += waiting(limiter, ("new", 99))
    await settle()
    shown += [[waiter.size for waiter in step] for step in steps]
    assert shown == [[10, 11], [13], [14, 15], []]
    served = await tasks[0]
    assert isinstance(served, Permit)
    await end(limiter, tasks)
    served.release()


@BOTH
async def test_who_changes_keys_between_two_steps_is_seen_once(share_by_key: bool, clock: ManualClock) -> None:
    limiter = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock, share_by_key=share_by_key)
    held, charges = await limiter.acquire(10), [Charge(key) for key in "abc"]
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[object]] = [loop.create_task(limiter.acquire(4, charge=charge)) for charge in charges]
    await settle()
    steps = limiter.waiters(9, 1)
    keys = [waiter.key for waiter in next(steps)]
    charges[0].reassign("c")
    charges[1].reassign("d")
    keys += [waiter.key for step in steps for waiter in step]
    assert keys == ["a", "d", "c"]
    await end(limiter, tasks)
    held.release()


@BOTH
async def test_a_look_in_steps_keeps_nobody_alive(share_by_key: bool, clock: ManualClock) -> None:
    limiter = AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=30, clock=clock, share_by_key=share_by_key)
    held = await limiter.acquire(10)
    tasks = waiting(limiter, *((number % 4, 1) for number in range(7)))
    await settle()
    steps, waiters = limiter.waiters(6, 2), WeakSet(limiter._acquirers)
    assert len(next(steps)) == 2
    assert len(waiters) == 7
    await end(limiter, tasks)
    tasks.clear()
    await settle()
    assert not len(waiters)
    assert [list(step) for step in steps] == [[], []]
    held.release()
