"""Test acquire and release: order, bounds, deadlines, live changes, close."""

import asyncio
import sys

import pytest

from limiter import (
    ForeignPermit,
    PermitAcquireAlreadyClosed,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
)
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


async def test_acquire_and_release_one(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(4)
    assert (permit.size, limiter.held, limiter.available) == (4, 4, 6)
    permit.release()
    assert (permit.size, limiter.available) == (0, 10)
    assert books_are_zero(limiter)


async def test_who_does_not_fit_waits_and_is_served_by_the_release(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first = await limiter.acquire(8)
    second = await start(limiter.acquire(5))
    assert not second.done()
    assert limiter.queue_size == 1
    first.release()
    assert limiter.held == 5, "the releaser books before the waiter runs"
    (await second).release()
    assert books_are_zero(limiter)


async def test_newcomer_cannot_slip_in_between_release_and_wake_up(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first = await limiter.acquire(10)
    second = await start(limiter.acquire(10))
    first.release()
    assert limiter.try_acquire(1) is None
    assert (await second).size == 10


async def test_small_one_waits_behind_a_head_that_does_not_fit(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first = await limiter.acquire(6)
    large = await start(limiter.acquire(10))
    small = await start(limiter.acquire(1))
    assert not small.done()
    assert limiter.try_acquire(1) is None
    first.release()
    await settle()
    assert large.done()
    assert not small.done()
    large.result().release()
    assert (await small).size == 1


async def test_one_release_serves_as_many_as_fit_in_order(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first = await limiter.acquire(10)
    tasks = [await start(limiter.acquire(n)) for n in (4, 3, 4, 1)]
    first.release()
    await settle()
    assert [task.done() for task in tasks] == [True, True, False, False]
    assert limiter.held == 7


async def test_several_releases_serve_in_the_order_of_arrival(clock: ManualClock) -> None:
    limiter = semaphore(1, clock)
    order: list[int] = []

    async def one(number: int) -> None:
        async with await limiter.acquire(1):
            order.append(number)

    tasks = [await start(one(number)) for number in range(20)]
    await asyncio.gather(*tasks)
    assert order == list(range(20))
    assert books_are_zero(limiter)


async def test_queue_full_refuses_at_once_and_counts(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=1)
    await limiter.acquire(10, key="a")
    await start(limiter.acquire(3))
    with pytest.raises(PermitAcquireQueueFull) as caught:
        await limiter.acquire(7)
    error = caught.value
    assert (error.limiter, error.limit, error.held, error.asked, error.queued) == ("heap", 10, 10, 7, 1)
    assert limiter.statistics().rejected == 1


async def test_place_of_one_that_left_can_be_taken(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=1)
    await limiter.acquire(10)
    leaver = await start(limiter.acquire(3))
    leaver.cancel()
    assert limiter.queue_size == 0, "free in the moment of the cancel"
    await start(limiter.acquire(3))
    assert limiter.queue_size == 1


async def test_deadline_passes_exactly(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=25.0)
    await limiter.acquire(10)
    waiter = await start(limiter.acquire(1))
    clock.advance(24.999)
    await settle()
    assert not waiter.done()
    clock.advance(0.001)
    assert limiter.queue_size == 0
    with pytest.raises(PermitAcquireTimeout, match="asked 1, held 10, limit 10, queued 0"):
        await waiter
    assert limiter.statistics().timed_out == 1


async def test_own_timeout_goes_before_the_default(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=25.0)
    await limiter.acquire(10)
    slow = await start(limiter.acquire(1, timeout_seconds=60.0))
    quick = await start(limiter.acquire(1, timeout_seconds=1.0))
    usual = await start(limiter.acquire(1))
    ever = await start(limiter.acquire(1, timeout_seconds=float("inf")))
    left_at = []
    for _ in range(70):
        clock.advance(1.0)
        await settle()
        left_at.append([task.done() for task in (slow, quick, usual, ever)])
    assert left_at[0] == [False, True, False, False]
    assert left_at[23] == [False, True, False, False]
    assert left_at[24] == [False, True, True, False]
    assert left_at[59] == [True, True, True, False]
    assert left_at[69] == [True, True, True, False]
    ever.cancel()
    await asyncio.gather(slow, quick, usual, ever, return_exceptions=True)


async def test_head_that_expires_serves_the_next(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    await limiter.acquire(5)
    large = await start(limiter.acquire(10, timeout_seconds=1.0))
    small = await start(limiter.acquire(5))
    clock.advance(1.0)
    assert (await small).size == 5
    with pytest.raises(PermitAcquireTimeout):
        await large


async def test_one_with_the_same_deadline_is_served_if_the_leaving_head_made_room(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    await limiter.acquire(5)
    large = await start(limiter.acquire(10))
    small = await start(limiter.acquire(5))
    clock.advance(25.0)
    await settle()
    assert isinstance(large.exception(), PermitAcquireTimeout)
    assert small.result().size == 5


async def test_timeout_zero_succeeds_at_once_or_fails(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=0.0)
    permit = await limiter.acquire(10)
    with pytest.raises(PermitAcquireTimeout):
        await limiter.acquire(1)
    permit.release()
    assert books_are_zero(limiter)


@pytest.mark.parametrize("n", [-1, -(10**12)])
async def test_negative_permits_are_refused_at_the_call(clock: ManualClock, n: int) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(1)
    with pytest.raises(ValueError, match=f"expected permits >= 0, got {n}"):
        await limiter.acquire(n)
    with pytest.raises(ValueError, match="expected permits >= 0"):
        limiter.try_acquire(n)
    with pytest.raises(ValueError, match="expected permits >= 0"):
        await limiter.update(permit, n)
    assert permit.size == limiter.held == 1


async def test_an_unhashable_key_is_refused_before_anything_is_booked(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    for free in (True, False):
        held = limiter.try_acquire(1 if free else 10, key="a")
        assert held is not None
        before = limiter.statistics()
        with pytest.raises(TypeError, match="expected a hashable key, got"):
            limiter.try_acquire(1, key={})  # type: ignore[arg-type]  # the misuse
        with pytest.raises(TypeError, match="expected a hashable key, got"):
            await limiter.acquire(1, key={})  # type: ignore[arg-type]  # the misuse
        assert limiter.statistics() == before
        held.release()
    assert books_are_zero(limiter)


async def test_zero_permits_pass_a_full_semaphore_and_its_queue(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=1)
    await limiter.acquire(10)
    await start(limiter.acquire(1))
    permit = await limiter.acquire(0)
    assert permit.size == 0
    assert limiter.try_acquire(0) is not None
    assert limiter.held == 10


async def test_larger_than_the_limit_waits_for_an_empty_pool_and_passes_alone_clamped(
    clock: ManualClock,
) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(4), await limiter.acquire(4)
    oversize = await start(limiter.acquire(25))
    behind = await start(limiter.acquire(1))
    first.release()
    await settle()
    assert not oversize.done()
    second.release()
    permit = await oversize
    assert (permit.size, permit.requested, limiter.held) == (10, 25, 10)
    await settle()
    assert not behind.done(), "it passes alone"
    permit.release()
    assert (await behind).size == 1


async def test_larger_than_the_limit_passes_at_once_when_nothing_is_held(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=0)
    assert (await limiter.acquire(11)).size == 10


async def test_try_acquire_never_overtakes(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    held = limiter.try_acquire(6)
    assert held is not None
    assert limiter.try_acquire(5) is None
    waiting = await start(limiter.acquire(5))
    assert limiter.try_acquire(1) is None
    waiting.cancel()
    assert limiter.try_acquire(4) is not None


async def test_release_twice_gives_back_once(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(4), await limiter.acquire(4)
    first.release()
    first.release()
    limiter.release(first)
    assert limiter.held == second.size == 4


async def test_permit_of_another_semaphore_is_refused(clock: ManualClock) -> None:
    limiter, other = semaphore(10, clock), semaphore(10, clock)
    permit = await other.acquire(3)
    with pytest.raises(ForeignPermit, match="expected a permit of its own"):
        limiter.release(permit)
    with pytest.raises(ForeignPermit, match="expected a permit of its own"):
        await limiter.update(permit, 1)
    assert (limiter.held, other.held) == (0, 3)


async def test_permit_is_released_at_the_end_of_with(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    with await limiter.acquire(3) as permit:
        assert limiter.held == permit.size == 3
    async with await limiter.acquire(4):
        assert limiter.held == 4
    with pytest.raises(RuntimeError, match="in the body"), await limiter.acquire(5):
        raise RuntimeError("in the body")
    assert books_are_zero(limiter)


async def test_raised_limit_serves_those_who_fit_now(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    await limiter.acquire(10)
    tasks = [await start(limiter.acquire(5)) for _ in range(3)]
    limiter.set_limit(20)
    await settle()
    assert [task.done() for task in tasks] == [True, True, False]


async def test_lowered_limit_takes_nothing_back_and_lets_nobody_in(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    limiter.set_limit(6)
    assert (limiter.held, limiter.available) == (10, 0)
    waiting = await start(limiter.acquire(2))
    first.release()
    await settle()
    assert not waiting.done()
    second.release()
    assert (await waiting).size == 2


async def test_waiter_that_became_larger_than_a_lowered_limit_still_passes_alone(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first = await limiter.acquire(5)
    waiting = await start(limiter.acquire(8))
    limiter.set_limit(6)
    first.release()
    permit = await waiting
    assert (permit.size, permit.requested) == (6, 8)


async def test_limit_becomes_unlimited_and_limited_again(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    await limiter.acquire(10)
    waiting = await start(limiter.acquire(30))
    limiter.set_limit(0)
    assert (await waiting).size == 30
    assert (limiter.held, limiter.available) == (40, sys.maxsize)
    limiter.set_limit(50)
    assert limiter.available == 10


async def test_lowered_queue_bound_keeps_those_who_wait(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=3)
    first = await limiter.acquire(10)
    tasks = [await start(limiter.acquire(1)) for _ in range(3)]
    limiter.max_queue = 1
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1)
    first.release()
    await asyncio.gather(*tasks)
    assert limiter.held == 3


async def test_changed_timeout_is_for_later_requests_only(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=25.0)
    await limiter.acquire(10)
    before = await start(limiter.acquire(1))
    limiter.timeout_seconds = 5.0
    after = await start(limiter.acquire(1))
    clock.advance(5.0)
    await settle()
    assert isinstance(after.exception(), PermitAcquireTimeout)
    assert not before.done()
    clock.advance(20.0)
    with pytest.raises(PermitAcquireTimeout):
        await before


async def test_close_fails_those_who_wait_and_those_who_come(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    waiting = await start(limiter.acquire(1))
    growing = await start(limiter.update(await limiter.acquire(0), 5))
    assert growing.done(), "the first growth may overshoot"
    limiter.close()
    limiter.close()
    with pytest.raises(PermitAcquireAlreadyClosed):
        await waiting
    with pytest.raises(PermitAcquireAlreadyClosed):
        await limiter.acquire(0)
    with pytest.raises(PermitAcquireAlreadyClosed):
        limiter.try_acquire(1)
    with pytest.raises(PermitAcquireAlreadyClosed):
        await limiter.update(permit, 11)
    assert limiter.closed
    assert clock.pending == 0


async def test_late_shrink_and_release_after_close_correct_the_books(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    limiter.close()
    await limiter.update(permit, 4)
    assert limiter.held == 4
    permit.release()
    assert books_are_zero(limiter)


async def test_unlimited_mode_lets_all_in_with_no_queue_and_no_timeout(clock: ManualClock) -> None:
    limiter = semaphore(0, clock, max_queue=1, timeout_seconds=0)
    permits = [await limiter.acquire(10**12) for _ in range(5)]
    await limiter.update(permits[0], 3 * 10**12)
    assert limiter.held == 7 * 10**12
    assert limiter.available == sys.maxsize
    assert limiter.statistics().overshoots == 0
    for permit in permits:
        permit.release()
    assert books_are_zero(limiter)


async def test_top_holders_are_the_keys_that_hold_most(clock: ManualClock) -> None:
    limiter = semaphore(100, clock)
    held = [await limiter.acquire(n, key=key) for key, n in (("a", 5), ("b", 20), ("a", 6), ("c", 1), (None, 9))]
    assert limiter.top_holders(2) == [("b", 20), ("a", 11)]
    await limiter.update(held[0], 30)
    assert limiter.top_holders(1) == [("a", 36)]
    for permit in held:
        permit.release()
    assert limiter.top_holders(5) == []


async def test_statistics_count_each_outcome(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=2, timeout_seconds=5.0)
    permit = await limiter.acquire(10)
    expiring, leaving = await start(limiter.acquire(1)), await start(limiter.acquire(1))
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1)
    leaving.cancel()
    clock.advance(5.0)
    await asyncio.gather(expiring, leaving, return_exceptions=True)
    await limiter.update(permit, 12)
    numbers = limiter.statistics()
    assert (numbers.queued, numbers.granted, numbers.timed_out) == (2, 2, 1)
    assert (numbers.rejected, numbers.cancelled, numbers.overshoots) == (1, 1, 1)
    assert (numbers.held, numbers.peak_held, numbers.queue_size) == (12, 12, 0)
    permit.release()
    assert limiter.statistics().peak_held == 12


async def test_repr_is_a_status_line(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10, key="a")
    await start(limiter.acquire(1))
    assert repr(limiter) == "<AsyncSemaphore heap: held 10 of 10, queued 1, growing 0>"
    assert repr(permit) == "<Permit of heap: held size=10 requested=10 key='a'>"
    limiter.set_limit(0)
    limiter.close()
    assert repr(limiter) == "<AsyncSemaphore heap closed: held 11 of unlimited, queued 0, growing 0>"


async def test_thousands_of_acquire_update_release_end_at_zero(clock: ManualClock) -> None:
    limiter = semaphore(1000, clock)

    async def use(n: int) -> None:
        async with await limiter.acquire(n % 97) as permit:
            await asyncio.sleep(0)
            await permit.update(n % 89)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for n in range(2000):
            group.create_task(use(n))
    assert books_are_zero(limiter)
    assert limiter.statistics().granted >= 2000
