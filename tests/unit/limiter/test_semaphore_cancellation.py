"""Test cancellation, named after the moment in which it comes; every test ends on the books."""

import asyncio
import gc
import weakref

import pytest

from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


async def outcome(*tasks: "asyncio.Task[object]") -> list[object]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_cancelled_from_any_place_leaves_at_once(clock: ManualClock, place: int) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    tasks = [await start(limiter.acquire(4)) for _ in range(3)]
    tasks[place].cancel()
    assert limiter.queue_size == 2, "before the cancelled task runs"
    permit.release()
    await settle()
    assert limiter.held == 8
    assert [task.cancelled() for task in tasks] == [number == place for number in range(3)]
    for task in tasks:
        if not task.cancelled():
            task.result().release()
    assert books_are_zero(limiter)


async def test_head_leaving_serves_the_next_in_the_same_moment(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(5)
    large = await start(limiter.acquire(6))
    small = await start(limiter.acquire(5))
    large.cancel()
    assert limiter.held == 10
    (await small).release()
    permit.release()
    assert books_are_zero(limiter)


async def test_cancelled_in_the_tick_of_the_grant_gives_back_and_serves_the_next(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    first = await start(limiter.acquire(10))
    second = await start(limiter.acquire(10))
    permit.release()
    first.cancel()
    await settle()
    assert first.cancelled()
    second.result().release()
    assert books_are_zero(limiter)
    assert limiter.statistics().cancelled == 1


async def test_cancelled_just_before_the_grant_holds_nothing(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    first = await start(limiter.acquire(10))
    first.cancel()
    permit.release()
    await outcome(first)
    assert books_are_zero(limiter)


async def test_cancelled_before_it_ever_ran_was_never_there(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    task = asyncio.get_running_loop().create_task(limiter.acquire(1))
    task.cancel()
    await outcome(task)
    assert books_are_zero(limiter)
    assert limiter.statistics().cancelled == 0


async def test_cancelled_in_the_tick_of_its_timeout_is_only_a_timeout(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    task = await start(limiter.acquire(1))
    clock.advance(25.0)
    task.cancel()
    await outcome(task)
    assert (limiter.statistics().timed_out, limiter.statistics().cancelled) == (1, 0)
    permit.release()
    assert books_are_zero(limiter)


async def test_dropped_coroutine_leaves_the_queue(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    coroutine = limiter.acquire(1)
    coroutine.send(None)
    assert limiter.queue_size == 1
    coroutine.close()
    assert limiter.queue_size == 0
    permit.release()
    assert books_are_zero(limiter)


async def test_dropped_coroutine_gives_its_grant_back(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    coroutine = limiter.acquire(1)
    coroutine.send(None)
    permit.release()
    assert limiter.held == 1
    coroutine.close()
    assert books_are_zero(limiter)


async def test_growth_cancelled_in_the_queue_keeps_the_old_size(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    task = await start(limiter.update(second, 8))
    task.cancel()
    assert (second.size, limiter.growers_waiting) == (5, 0)
    await outcome(task)
    assert limiter.try_update(second, 4), "usable again"
    first.release()
    second.release()
    assert books_are_zero(limiter)


async def test_growth_cancelled_in_the_tick_of_the_grant_goes_back_to_the_old_size(
    clock: ManualClock,
) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    task = await start(limiter.update(second, 8))
    newcomer = await start(limiter.acquire(5))
    first.release()
    assert second.size == 8
    task.cancel()
    await outcome(task)
    assert (second.size, second.requested) == (5, 5)
    (await newcomer).release()
    second.release()
    assert books_are_zero(limiter)


async def test_growth_cancelled_after_grant_and_release_gives_nothing_back_twice(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    task = await start(limiter.update(second, 8))
    first.release()
    second.release()
    task.cancel()
    await outcome(task)
    assert books_are_zero(limiter)


async def test_head_grower_leaving_makes_the_next_the_head(clock: ManualClock) -> None:
    limiter = semaphore(12, clock)
    first, second, third = [await limiter.acquire(4) for _ in range(3)]
    await limiter.update(first, 5)
    large = await start(limiter.update(second, 20))
    small = await start(limiter.update(third, 5))
    large.cancel()
    first.release()
    await small
    assert (second.size, third.size, limiter.held) == (4, 5, 9)
    second.release()
    third.release()
    await outcome(large)
    assert books_are_zero(limiter)


async def test_cancelled_overshooting_growth_lets_the_next_overshoot(clock: ManualClock) -> None:
    limiter = semaphore(12, clock)
    first, second, third = [await limiter.acquire(4) for _ in range(3)]
    await limiter.update(first, 5)
    large = await start(limiter.update(second, 20))
    small = await start(limiter.update(third, 15))
    first.release()
    assert (second.size, third.size) == (20, 4)
    large.cancel()
    await outcome(large)
    assert (second.size, third.size) == (4, 15)
    second.release()
    (await small).release()
    assert books_are_zero(limiter)


async def test_timeout_of_asyncio_around_a_wait_frees_the_place(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await limiter.acquire(1)
    assert limiter.queue_size == 0
    permit.release()
    assert books_are_zero(limiter)


async def test_failing_task_group_takes_all_its_waiters_out(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)

    async def client_leaves() -> None:
        await settle()
        raise ConnectionResetError

    with pytest.raises(ExceptionGroup):  # noqa: PT012 - the group is the statement
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(limiter.acquire(1))
            group.create_task(client_leaves())
    assert limiter.queue_size == 0
    assert limiter.statistics().cancelled == 50
    permit.release()
    assert books_are_zero(limiter)


async def test_refused_acquire_leaves_no_cycle_behind(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    task = await start(limiter.acquire(1))
    clock.advance(25.0)
    await settle()
    gc.collect()
    gc.disable()
    try:
        error = weakref.ref(task.exception() or AssertionError())
        del task
        assert error() is None, "freed by its last reference, not by the collector"
    finally:
        gc.enable()
    permit.release()
