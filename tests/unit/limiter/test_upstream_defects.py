"""Show for each weakness of upstream's limiter (Pulsar 4.x) that this one does not have it."""

import asyncio
import gc
import weakref

import pytest

from limiter import (
    AsyncDualMemoryLimiter,
    ForeignPermit,
    LimitType,
    PermitAcquireAlreadyClosed,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
    PermitBusy,
)
from limiter.permit import AcquireWaiter
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import RaisingObserver, books_are_zero, semaphore, settle, start


async def test_dual_acquire_given_up_at_its_grant_leaks_nothing(clock: ManualClock) -> None:
    limiter = AsyncDualMemoryLimiter(semaphore(10, clock), semaphore(10, clock))
    permit = await limiter.acquire(10, LimitType.HEAP_MEMORY)
    given_up = await start(limiter.acquire(10, LimitType.HEAP_MEMORY))
    permit.release()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert books_are_zero(limiter.heap)


async def test_update_given_up_at_its_grant_leaks_nothing(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    given_up = await start(limiter.update(second, 9))
    first.release()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert limiter.held == second.size == 5
    second.release()
    assert books_are_zero(limiter)


async def test_cancellation_is_not_lazy(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=2)
    await limiter.acquire(10)
    await start(limiter.acquire(1))
    behind = await start(limiter.acquire(1))
    behind.cancel()
    assert limiter.queue_size == 1, "seen behind the head, with nothing free and nothing else happening"
    await start(limiter.acquire(1))
    numbers = limiter.statistics()
    assert (numbers.cancelled, numbers.timed_out, numbers.rejected) == (1, 0, 0), "reported as what it is"


async def test_dead_requests_do_not_stay_in_the_queue(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=25.0)
    await limiter.acquire(10)
    tasks = [await start(limiter.acquire(10)) for _ in range(3)]
    clock.advance(25.0)
    assert limiter.queue_size == 0
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, PermitAcquireTimeout) for outcome in outcomes)


async def test_upgrades_do_not_wait_behind_newcomers(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    newcomers = [await start(limiter.acquire(10)) for _ in range(3)]
    assert limiter.try_update(permit, 12)
    permit.release()
    assert (await newcomers[0]).size == 10


async def test_two_upgraders_are_no_deadlock(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    tasks = [await start(limiter.update(permit, 8)) for permit in (first, second)]
    await settle()
    assert tasks[0].done()
    first.release()
    assert (await tasks[1]).size == 8


async def test_heap_against_direct_is_no_deadlock_in_the_order_heap_then_direct(clock: ManualClock) -> None:
    limiter = AsyncDualMemoryLimiter(semaphore(10, clock), semaphore(10, clock))

    async def answer() -> None:
        async with await limiter.acquire(5, LimitType.HEAP_MEMORY) as heap:
            await asyncio.sleep(0)
            await heap.update(10)
            async with await limiter.acquire(10, LimitType.DIRECT_MEMORY):
                await asyncio.sleep(0)

    tasks = [await start(answer()) for _ in range(20)]
    for _ in range(200):
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks), "no timeout breaks it: no time has passed"
    await asyncio.gather(*tasks)
    assert books_are_zero(limiter.heap)
    assert books_are_zero(limiter.direct)


async def test_foreign_stale_and_doubly_updated_permits_commit_nothing(clock: ManualClock) -> None:
    limiter, other = semaphore(10, clock), semaphore(10, clock)
    stale = await limiter.acquire(3)
    stale.release()
    foreign = await other.acquire(3)
    for permit in (stale, foreign):
        with pytest.raises(ForeignPermit):
            await limiter.update(permit, 5)
    over, doubled = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(over, 6)
    await start(limiter.update(doubled, 7))
    with pytest.raises(PermitBusy):
        await limiter.update(doubled, 8)
    assert limiter.held == 11


async def test_raising_observer_does_not_stop_the_queue(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=3, timeout_seconds=1.0, observer=RaisingObserver())
    permit = await limiter.acquire(10)
    served, leaving, expiring = [await start(limiter.acquire(n)) for n in (10, 1, 1)]
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1)
    leaving.cancel()
    await limiter.update(permit, 11)
    permit.release()
    clock.advance(1.0)
    (await served).release()
    await asyncio.gather(leaving, expiring, return_exceptions=True)
    assert books_are_zero(limiter)
    # 3 queued, 3 granted (one a growth), 1 updated, 1 rejected, 1 cancelled, 1 timed out, 2 released
    assert limiter.statistics().observer_errors == 12


async def test_zero_permits_do_not_wait(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=0)
    await limiter.acquire(10)
    assert (await limiter.acquire(0)).size == 0


async def test_timeout_zero_does_not_refuse_what_fits(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=0)
    assert (await limiter.acquire(10)).size == 10


async def test_burst_does_not_meet_queue_full_with_permits_free(clock: ManualClock) -> None:
    limiter = semaphore(1000, clock, max_queue=1)
    permits = await asyncio.gather(*(limiter.acquire(1) for _ in range(1000)))
    assert limiter.held == len(permits) == 1000
    assert limiter.statistics().rejected == 0


async def test_unlimited_mode_keeps_books_and_minds_close(clock: ManualClock) -> None:
    limiter = semaphore(0, clock)
    permit = await limiter.acquire(10**9, key="a")
    assert limiter.held == 10**9
    assert limiter.top_holders(1) == [("a", 10**9)]
    limiter.close()
    with pytest.raises(PermitAcquireAlreadyClosed):
        await limiter.acquire(1)
    permit.release()
    assert books_are_zero(limiter)


async def test_finished_requests_leave_no_timer_and_no_memory(clock: ManualClock) -> None:
    limiter = semaphore(1, clock, timeout_seconds=3600.0)
    permit = await limiter.acquire(1)
    tasks = [await start(limiter.acquire(1)) for _ in range(100)]
    assert clock.pending == 1
    # Waiters of other tests, cancelled ones, are held by their own tracebacks.
    gc.collect()
    waiters = [weakref.ref(waiter) for waiter in gc.get_objects() if type(waiter) is AcquireWaiter]
    assert len(waiters) == 100
    permit.release()
    for task in tasks:
        (await task).release()
    del task, tasks
    assert [waiter for waiter in waiters if waiter() is not None] == []
    assert clock.pending <= 1


async def test_waits_are_bounded_in_time_without_anybody_else_doing_anything(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=25.0)
    await limiter.acquire(10)
    waiting = await start(limiter.acquire(1))
    clock.advance(25.0)
    with pytest.raises(PermitAcquireTimeout):
        await waiting
