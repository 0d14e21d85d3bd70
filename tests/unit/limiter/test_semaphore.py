"""Examples of each promise of the semaphore; `tests/property/test_semaphore_machine.py` has them in any order.

In one line, and in turns by key: for a single key both are the same.
"""

import asyncio
import gc
import pickle
import sys
import weakref
from functools import partial
from itertools import pairwise
from typing import Protocol

import pytest

from limiter import (
    AsyncSemaphore,
    ForeignPermit,
    Permit,
    PermitAcquireAlreadyClosed,
    PermitAcquireCancelled,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
    PermitBusy,
)
from limiter.observer import WaitObserver
from limiter.permit import AcquireWaiter
from limiter.semaphore import MOST_AT_ONCE
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


class Make(Protocol):
    def __call__(
        self,
        limit: int,
        *,
        max_queue: int = 0,
        timeout_seconds: float = 25.0,
        observer: WaitObserver | None = None,
    ) -> AsyncSemaphore: ...


@pytest.fixture(params=[False, True], ids=["one line", "turns"])
def make(request: pytest.FixtureRequest, clock: ManualClock) -> Make:
    """Make semaphores of one kind."""
    return partial(semaphore, clock=clock, share_by_key=request.param)


async def overshot(limiter: AsyncSemaphore) -> tuple[Permit, Permit]:
    """Share a limit of 10 between two permits, the first of which has grown by 4 above it."""
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 9)
    return first, second


# --- acquire and release --------------------------------------------------------------------------


async def test_who_does_not_fit_waits_and_is_served_by_the_release_before_any_newcomer(make: Make) -> None:
    limiter = make(10)
    first = await limiter.acquire(8)
    assert (limiter.held, limiter.available) == (8, 2)
    second = await start(limiter.acquire(10))
    assert (second.done(), limiter.queue_size) == (False, 1)
    assert limiter.try_acquire(1) is None, "nobody overtakes"
    first.release()
    assert (first.size, limiter.held) == (0, 10), "the releaser books before the waiter runs"
    (await second).release()
    assert books_are_zero(limiter)


async def test_a_full_queue_refuses_at_once_with_the_numbers_and_a_place_that_was_left_can_be_taken(make: Make) -> None:
    limiter = make(10, max_queue=2)
    held = await limiter.acquire(10)
    waiting = [await start(limiter.acquire(3)) for _ in range(2)]
    with pytest.raises(PermitAcquireQueueFull) as caught:
        await limiter.acquire(7)
    assert str(caught.value) == "heap limiter: queue full: asked 7, held 10, limit 10, queued 2"
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.limiter, error.limit, error.held, error.asked, error.queued) == ("heap", 10, 10, 7, 2)
    waiting[0].cancel()
    assert limiter.queue_size == 1, "free in the moment of the cancel"
    await start(limiter.acquire(3))
    limiter.max_queue = 1
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1)
    held.release()
    assert limiter.held == 6, "who waits already stays"


async def test_a_wait_ends_at_its_own_deadline_or_that_of_its_time_and_not_before(
    make: Make, clock: ManualClock
) -> None:
    limiter = make(10)
    await limiter.acquire(10)
    given = (60.0, 1.0, None, float("inf"))
    waits = [await start(limiter.acquire(1, timeout_seconds=seconds)) for seconds in given]
    limiter.timeout_seconds = 5.0
    waits.append(await start(limiter.acquire(1)))
    ended = dict[int, float]()
    began = clock.time()
    for _ in range(140):
        clock.advance(0.5)
        await settle()
        ended |= {at: clock.time() - began for at, task in enumerate(waits) if task.done() and at not in ended}
    assert ended == {0: 60.0, 1: 1.0, 2: 25.0, 4: 5.0}
    with pytest.raises(PermitAcquireTimeout, match="asked 1, held 10, limit 10, queued 2"):
        await waits[2]
    with pytest.raises(PermitAcquireTimeout):
        await limiter.acquire(1, timeout_seconds=0)
    assert limiter.statistics().timed_out == 5


async def test_wrong_arguments_change_nothing(make: Make) -> None:
    limiter = make(10)
    permit = await limiter.acquire(1, key="a")
    before = limiter.statistics()
    with pytest.raises(ValueError, match="expected permits >= 0, got -1"):
        await limiter.acquire(-1)
    with pytest.raises(ValueError, match="expected permits >= 0"):
        await limiter.update(permit, -1)
    with pytest.raises(TypeError, match="unhashable type"):
        await limiter.acquire(1, key={})  # type: ignore[arg-type]  # the misuse
    assert limiter.statistics() == before


async def test_larger_than_the_limit_waits_for_an_empty_pool_and_passes_alone_clamped(make: Make) -> None:
    limiter = make(10)
    first = await limiter.acquire(4)
    oversize = await start(limiter.acquire(25))
    behind = await start(limiter.acquire(8))
    first.release()
    permit = await oversize
    assert (permit.size, permit.requested, limiter.held) == (10, 25, 10)
    assert not behind.done(), "it passes alone"
    await permit.update(25)
    assert limiter.held == 25, "growth books the truth"
    limiter.set_limit(6)
    permit.release()
    assert ((await behind).size, behind.result().requested) == (6, 8), "larger than a lowered limit"
    behind.result().release()
    assert (await limiter.acquire(7, timeout_seconds=0)).size == 6


async def test_misuse_of_a_permit_is_refused_and_books_nothing(make: Make) -> None:
    limiter, other = make(10), make(10)
    released, foreign = await limiter.acquire(4), await other.acquire(3)
    released.release()
    released.release()
    with pytest.raises(ForeignPermit, match="expected a permit of its own"):
        limiter.release(foreign)
    for permit in (released, foreign):
        with pytest.raises(ForeignPermit, match="expected a permit"):
            await limiter.update(permit, 1)
    _, second = await overshot(limiter)
    await start(limiter.update(second, 6))
    for n in (3, 5, 8):
        with pytest.raises(PermitBusy, match="no update under way"):
            await limiter.update(second, n)
    assert (limiter.held, other.held) == (14, 3)


async def test_permit_is_released_at_the_end_of_with(make: Make) -> None:
    limiter = make(10)
    with await limiter.acquire(3) as permit:
        assert limiter.held == permit.size == 3
    with pytest.raises(RuntimeError, match="in the body"), await limiter.acquire(5):
        raise RuntimeError("in the body")
    assert books_are_zero(limiter)


async def test_without_a_limit_all_are_let_in_and_counted(make: Make) -> None:
    limiter = make(10)
    permit = await limiter.acquire(10, key="a")
    waiting = await start(limiter.acquire(30))
    limiter.set_limit(0)
    permits = [permit, await waiting, await limiter.acquire(10**12, key="a", timeout_seconds=0)]
    await limiter.update(permit, 20)
    assert (limiter.held, limiter.available) == (10**12 + 50, sys.maxsize)
    assert limiter.top_holders(1) == [("a", 10**12 + 20)]
    assert limiter.statistics().overshoots == 0
    for each in permits:
        each.release()
    assert books_are_zero(limiter)


async def test_close_fails_those_who_wait_and_those_who_come_and_takes_back_what_is_held(
    make: Make, clock: ManualClock
) -> None:
    limiter = make(10)
    permit, second = await overshot(limiter)
    waiting, growing = await start(limiter.acquire(1)), await start(limiter.update(second, 6))
    limiter.close()
    limiter.close()
    for ended in (waiting, growing, limiter.acquire(0), limiter.update(permit, 11)):
        with pytest.raises(PermitAcquireAlreadyClosed):
            await ended
    assert clock.pending == 0
    await limiter.update(permit, 4)
    assert limiter.held == 9
    for each in (permit, second):
        each.release()
    assert books_are_zero(limiter)


@pytest.mark.parametrize("ends", ["released", "raised", "last one left"])
async def test_many_who_fit_are_served_in_steps_and_nobody_passes_them_or_is_lost(make: Make, ends: str) -> None:
    limiter, many = make(2000), 6 * MOST_AT_ONCE
    held = await limiter.acquire(2000)
    blocks = await start(limiter.acquire(2000)) if ends == "last one left" else None
    tasks = [await start(limiter.acquire(1)) for _ in range(many)]
    if blocks is not None:
        held.try_update(1000)
        blocks.cancel()
    elif ends == "released":
        held.release()
    else:
        limiter.set_limit(4000)
    assert limiter.queue_size == many - MOST_AT_ONCE
    assert limiter.try_acquire(1) is None, "nobody overtakes"
    late = asyncio.get_running_loop().create_task(limiter.acquire(1))
    tasks[-1].cancel()
    left = [limiter.queue_size]
    for _ in range(many):
        await asyncio.sleep(0)
        left.append(limiter.queue_size)
    assert max(before - after for before, after in pairwise(left)) <= MOST_AT_ONCE
    assert left[-1] == 0
    for task in (*tasks[:-1], late):
        task.result().release()
    held.release()
    assert books_are_zero(limiter)


async def test_what_is_free_between_two_steps_is_for_the_growth_that_waits(make: Make) -> None:
    limiter, many = make(1000), 2 * MOST_AT_ONCE
    permits = [await limiter.acquire(1) for _ in range(many)]
    over, other = await limiter.acquire(100), await limiter.acquire(1)
    await limiter.update(over, 2000)
    growing = [await start(limiter.update(permit, 5)) for permit in permits]
    over.release()
    assert limiter.growers_waiting == many - MOST_AT_ONCE
    assert limiter.try_acquire(1) is None
    assert not limiter.try_update(other, 2)
    await settle()
    assert all(task.done() for task in growing)
    assert limiter.try_update(other, 2)
    for permit in (*permits, other):
        permit.release()
    assert books_are_zero(limiter)


async def test_close_between_two_steps_fails_those_who_are_left(make: Make) -> None:
    limiter = make(2000)
    held = await limiter.acquire(2000)
    tasks = [await start(limiter.acquire(1)) for _ in range(2 * MOST_AT_ONCE)]
    held.release()
    limiter.close()
    await settle()
    served = [task for task in tasks if task.exception() is None]
    assert len(served) == MOST_AT_ONCE
    assert {type(task.exception()) for task in tasks} == {type(None), PermitAcquireAlreadyClosed}
    for task in served:
        task.result().release()
    assert books_are_zero(limiter)


# --- growth ---------------------------------------------------------------------------------------


async def test_one_grower_overshoots_and_the_others_wait_for_it_in_order(make: Make) -> None:
    limiter = make(12, max_queue=1)
    over, large, small = [await limiter.acquire(4) for _ in range(3)]
    await limiter.update(over, 8)
    await start(limiter.acquire(1))
    growing_large, growing_small = await start(limiter.update(large, 12)), await start(limiter.update(small, 5))
    assert (large.size, limiter.held, limiter.growers_waiting) == (4, 16, 2), "no bound on growth, old sizes held"
    await limiter.update(over, 9)
    assert limiter.statistics().overshoots == 1, "the one that overshoots may go on"
    over.release()
    await settle()
    assert (growing_large.done(), growing_small.done(), large.requested) == (True, False, 12)
    large.release()
    assert (await growing_small).size == 5


@pytest.mark.parametrize(
    ("size", "limit", "other", "ended"),
    [(8, 10, 5, False), (5, 10, 5, True), (9, 13, 5, False), (9, 14, 5, True), (9, 0, 5, True), (9, 10, 1, True)],
    ids=["still above", "as before", "limit below", "limit reached", "no limit", "others made room"],
)
async def test_the_overshoot_ends_with_what_was_overshot(
    make: Make, size: int, limit: int, other: int, ended: bool
) -> None:
    limiter = make(10)
    first, second = await overshot(limiter)
    limiter.set_limit(limit)
    assert first.try_update(size)
    assert second.try_update(other)
    assert second.try_update(30) is ended


async def test_growers_go_before_newcomers(make: Make) -> None:
    limiter = make(12)
    first, second, third = [await limiter.acquire(4) for _ in range(3)]
    await limiter.update(first, 10)
    newcomer, growing = await start(limiter.acquire(5)), await start(limiter.update(second, 8))
    third.release()
    await settle()
    assert (limiter.held, growing.done(), newcomer.done()) == (14, False, False)
    assert limiter.try_acquire(1) is None
    first.release()
    await settle()
    assert (growing.done(), newcomer.done()) == (True, False)


async def test_growth_that_times_out_leaves_the_old_size_and_may_be_tried_again(make: Make, clock: ManualClock) -> None:
    limiter = make(10, timeout_seconds=5.0)
    first, second = await overshot(limiter)
    growing = await start(limiter.update(second, 6))
    clock.advance(5.0)
    for late in (growing, limiter.update(second, 6, timeout_seconds=0)):
        with pytest.raises(PermitAcquireTimeout, match="asked 6"):
            await late
    assert (second.size, second.requested, limiter.held) == (5, 5, 14)
    first.release()
    await second.update(6)
    assert second.size == second.requested == 6


@pytest.mark.parametrize("granted", [False, True])
async def test_release_during_growth_ends_it_as_cancelled_and_frees_all(make: Make, granted: bool) -> None:
    limiter = make(10)
    first, second = await overshot(limiter)
    growing = await start(limiter.update(second, 6))
    if granted:
        first.release()
        assert limiter.held == second.size == 6, "granted, and its task has not run"
    second.release()
    with pytest.raises(PermitAcquireCancelled):
        await growing
    first.release()
    assert books_are_zero(limiter)
    assert granted or limiter.statistics().cancelled == 1


# --- leaving --------------------------------------------------------------------------------------


async def test_cancelled_in_the_tick_of_its_timeout_is_only_a_timeout(make: Make, clock: ManualClock) -> None:
    limiter = make(10)
    await limiter.acquire(10)
    task = await start(limiter.acquire(1))
    clock.advance(25.0)
    task.cancel()
    await settle()
    assert (limiter.statistics().timed_out, limiter.statistics().cancelled) == (1, 0)


@pytest.mark.parametrize("released", [False, True])
async def test_growth_that_is_cancelled_in_its_grant_goes_back_to_what_was_held(make: Make, released: bool) -> None:
    limiter = make(10)
    first, second = await overshot(limiter)
    task = await start(limiter.update(second, 15))
    first.release()
    assert second.size == 15, "granted, and its task has not run"
    if released:
        second.release()
    task.cancel()
    await settle()
    assert (task.cancelled(), second.size) == (True, 0 if released else 5)
    second.release()
    assert books_are_zero(limiter)


@pytest.mark.parametrize("granted", [False, True], ids=["waits", "granted"])
async def test_a_coroutine_that_is_dropped_gives_back_what_it_had(make: Make, granted: bool) -> None:
    limiter = make(10)
    permit = await limiter.acquire(10)
    coroutine = limiter.acquire(1)
    coroutine.send(None)
    if granted:
        permit.release()
    assert (limiter.queue_size, limiter.held) == ((0, 1) if granted else (1, 10))
    coroutine.close()
    permit.release()
    assert books_are_zero(limiter)


async def test_a_refused_acquire_leaves_no_cycle_behind(make: Make, clock: ManualClock) -> None:
    limiter = make(10)
    await limiter.acquire(10)
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


async def test_finished_requests_leave_no_timer_and_no_memory(make: Make, clock: ManualClock) -> None:
    limiter = make(1, timeout_seconds=3600.0)
    permit = await limiter.acquire(1)
    tasks = [await start(limiter.acquire(1)) for _ in range(100)]
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


# --- what others see ------------------------------------------------------------------------------


async def test_each_outcome_is_counted_and_told_with_the_wait(make: Make, clock: ManualClock) -> None:
    waits = list[tuple[float, bool]]()
    limiter = make(
        10, max_queue=2, timeout_seconds=9.0, observer=lambda seconds, served: waits.append((seconds, served))
    )
    short = list[bool]()
    limiter.notify_waits(lambda: short.append(limiter.short))
    permit = await limiter.acquire(10)
    leaving, expiring = await start(limiter.acquire(1)), await start(limiter.acquire(1))
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1)
    leaving.cancel()
    clock.advance(9.0)
    second = await limiter.acquire(0)
    await limiter.update(permit, 12)
    growing = await start(limiter.update(second, 6))
    clock.advance(1.5)
    permit.release()
    await growing
    assert waits == [(0.0, True), (9.0, False), (0.0, True), (0.0, True), (1.5, True)]
    numbers = limiter.statistics()
    assert (numbers.queued, numbers.granted, numbers.timed_out) == (3, 4, 1)
    assert (numbers.rejected, numbers.cancelled, numbers.overshoots) == (1, 1, 1)
    assert (numbers.held, numbers.peak_held, numbers.queue_size) == (6, 12, 0)
    assert short == [True] * 3
    assert isinstance(expiring.exception(), PermitAcquireTimeout)


async def test_an_observer_that_raises_stops_nobody(make: Make, clock: ManualClock) -> None:
    limiter = make(10, max_queue=3, timeout_seconds=1.0, observer=lambda seconds, served: 1 // 0)
    told = list[int]()
    limiter.notify_waits(lambda: told.append(1 // 0))
    limiter.notify_waits(lambda: told.append(1))
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
    # 3 queued, 3 granted (one a growth), 1 timed out
    assert (told, limiter.statistics().observer_errors) == ([1] * 3, 7)
