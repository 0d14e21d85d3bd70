"""Test update: growers before newcomers, the one overshoot, and that no set of growing permits is stuck."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from limiter import ForeignPermit, Permit, PermitAcquireCancelled, PermitAcquireTimeout, PermitBusy
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


async def test_growth_that_fits_is_booked_at_once_in_place(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(2)
    assert await permit.update(7) is permit
    assert (permit.size, permit.requested, limiter.held) == (7, 7, 7)
    assert limiter.statistics().overshoots == 0


async def test_shrink_serves_those_who_wait(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    waiting = await start(limiter.acquire(4))
    await permit.update(6)
    assert (await waiting).size == 4


async def test_update_to_zero_keeps_the_permit_usable(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(10)
    assert permit.try_update(0)
    assert limiter.held == 0
    assert permit.try_update(10)
    permit.release()
    assert books_are_zero(limiter)


async def test_one_grower_overshoots_and_the_next_waits_for_it(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 9)
    assert limiter.held == 14
    growing = await start(limiter.update(second, 9))
    assert not growing.done()
    assert (second.size, limiter.growers_waiting) == (5, 1), "the old size stays held"
    first.release()
    assert (await growing).size == 9
    assert second.requested == 9
    second.release()
    assert books_are_zero(limiter)


async def test_overshoot_ends_when_held_is_back_at_the_limit(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second, third = [await limiter.acquire(n) for n in (4, 4, 2)]
    await limiter.update(first, 6)
    assert not limiter.try_update(second, 9)
    third.release()
    assert limiter.held == 10
    assert limiter.try_update(second, 9), "held came back to the limit, so the next may overshoot"


async def test_shrink_that_stays_above_the_old_size_does_not_end_the_overshoot(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 9)
    await limiter.update(first, 8)
    assert not limiter.try_update(second, 9), "or each permit in turn could overshoot"
    await limiter.update(first, 5)
    assert limiter.try_update(second, 9)


async def test_shrink_to_the_old_size_ends_the_overshoot_under_a_lowered_limit(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    limiter.set_limit(2)
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    assert not growing.done()
    await limiter.update(first, 5)
    assert (await growing).size == 6


async def test_the_overshooter_may_grow_on_past_those_who_wait_for_its_end(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    await limiter.update(first, 7)
    assert limiter.statistics().overshoots == 1
    first.release()
    assert (await growing).size == 6


async def test_growers_go_before_newcomers(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    newcomer = await start(limiter.acquire(5))
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 10))
    first.release()
    await settle()
    assert growing.done()
    assert not newcomer.done()
    second.release()
    await newcomer


async def test_no_newcomer_passes_while_a_grower_waits(clock: ManualClock) -> None:
    limiter = semaphore(12, clock)
    first, second, third = [await limiter.acquire(4) for _ in range(3)]
    await limiter.update(first, 10)
    growing = await start(limiter.update(second, 5))
    newcomer = await start(limiter.acquire(1))
    third.release()
    await settle()
    assert (limiter.held, growing.done(), newcomer.done()) == (14, False, False)
    assert limiter.try_acquire(1) is None
    limiter.try_update(first, 8)
    await settle()
    assert (limiter.held, growing.done(), newcomer.done()) == (13, True, False)
    second.release()
    await newcomer


async def test_growers_are_served_in_order_and_the_head_holds_up_the_rest(clock: ManualClock) -> None:
    limiter = semaphore(12, clock)
    over, large, small = [await limiter.acquire(4) for _ in range(3)]
    await limiter.update(over, 8)
    growing_large = await start(limiter.update(large, 12))
    growing_small = await start(limiter.update(small, 5))
    over.release()
    await settle()
    assert growing_large.done()
    assert not growing_small.done()
    large.release()
    assert (await growing_small).size == 5


async def test_growers_are_not_refused_by_a_full_queue(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, max_queue=1)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await start(limiter.acquire(1))
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    assert (limiter.queue_size, limiter.growers_waiting) == (1, 1)
    first.release()
    await growing


async def test_growth_that_times_out_leaves_the_old_size_and_may_be_tried_again(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=5.0)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    clock.advance(5.0)
    with pytest.raises(PermitAcquireTimeout, match="asked 6"):
        await growing
    assert (second.size, second.requested, limiter.held) == (5, 5, 11)
    first.release()
    assert (await second.update(6)).size == 6


async def test_growth_with_timeout_zero_does_not_wait(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    with pytest.raises(PermitAcquireTimeout):
        await limiter.update(second, 6, timeout_seconds=0)
    assert second.size == 5


async def test_release_during_growth_ends_it_as_cancelled_and_frees_all(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    second.release()
    assert (limiter.held, limiter.growers_waiting) == (6, 0)
    with pytest.raises(PermitAcquireCancelled):
        await growing
    assert limiter.statistics().cancelled == 1


async def test_release_between_the_grant_of_a_growth_and_its_wake_up_frees_all(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    first.release()
    assert limiter.held == second.size == 6
    second.release()
    with pytest.raises(PermitAcquireCancelled):
        await growing
    assert books_are_zero(limiter)


async def test_second_update_of_a_permit_is_refused_while_the_first_waits(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    await limiter.update(first, 6)
    growing = await start(limiter.update(second, 6))
    for n in (3, 5, 8):
        with pytest.raises(PermitBusy, match="no update under way"):
            await limiter.update(second, n)
    first.release()
    with pytest.raises(PermitBusy):  # granted, but not taken yet
        limiter.try_update(second, 2)
    await growing
    assert limiter.try_update(second, 2)


async def test_update_of_a_released_permit_is_refused(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(5)
    permit.release()
    for n in (0, 1, 20):
        with pytest.raises(ForeignPermit, match="expected a permit that is held"):
            await limiter.update(permit, n)
    assert books_are_zero(limiter)


async def test_growth_of_a_clamped_permit_books_the_truth(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permit = await limiter.acquire(15)
    await permit.update(15)
    assert (permit.size, limiter.held) == (15, 15)
    permit.release()
    assert books_are_zero(limiter)


async def test_every_permit_growing_is_no_deadlock(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    permits = [await limiter.acquire(1) for _ in range(10)]

    async def grow_and_end(permit: Permit) -> None:
        await limiter.update(permit, 2)
        await asyncio.sleep(0)
        permit.release()

    tasks = [await start(grow_and_end(permit)) for permit in permits]
    await settle_all(tasks)
    assert books_are_zero(limiter)
    assert limiter.statistics().timed_out == 0
    assert limiter.statistics().peak_held == 11, "one overshoot at a time"


async def test_oversize_growth_in_front_of_held_estimates_is_no_deadlock(clock: ManualClock) -> None:
    limiter = semaphore(100, clock)
    estimates = [await limiter.acquire(10) for _ in range(10)]

    async def grow_and_end(permit: Permit, n: int) -> None:
        await limiter.update(permit, n)
        await asyncio.sleep(0)
        permit.release()

    sizes = [250, 300, *[20] * 8]
    tasks = [await start(grow_and_end(permit, n)) for permit, n in zip(estimates, sizes, strict=True)]
    newcomers = [await start(limiter.acquire(10)) for _ in range(3)]
    await settle_all([*tasks, *newcomers])
    assert limiter.held == 30
    assert limiter.statistics().peak_held <= 100 + 300


@pytest.mark.parametrize("lowered", [1, 9, 10, 50])
async def test_every_permit_growing_twice_under_a_lowered_limit_is_no_deadlock(
    clock: ManualClock, lowered: int
) -> None:
    limiter = semaphore(100, clock)
    permits = [await limiter.acquire(10) for _ in range(10)]
    limiter.set_limit(lowered)

    async def grow_and_end(permit: Permit) -> None:
        for n in (11, 15, 12, 30):
            await limiter.update(permit, n)
            await asyncio.sleep(0)
        permit.release()

    tasks = [await start(grow_and_end(permit)) for permit in permits]
    await settle_all(tasks)
    assert books_are_zero(limiter)
    assert limiter.statistics().peak_held <= 100 + 20


async def settle_all(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Run until all have ended; without the end of time: a stuck one fails the test at once."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert [task for task in tasks if not task.done()] == []
    await asyncio.gather(*tasks)
