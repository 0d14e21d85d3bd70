"""Test the pair of semaphores: each kind alone, and that they do not mix."""

import asyncio

import pytest

from limiter import (
    AsyncDualMemoryLimiter,
    Charge,
    ForeignPermit,
    LimitType,
    PermitAcquireAlreadyClosed,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
)
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import RecordingObserver, books_are_zero, semaphore, settle, start

BOTH = list(LimitType)


@pytest.fixture
def limiter(clock: ManualClock) -> AsyncDualMemoryLimiter:
    return AsyncDualMemoryLimiter.create(
        heap_limit_bytes=100,
        heap_max_queue=1,
        heap_timeout_seconds=10.0,
        direct_limit_bytes=50,
        direct_max_queue=1,
        direct_timeout_seconds=10.0,
        clock=clock,
    )


def test_create_hands_each_its_own_numbers(clock: ManualClock) -> None:
    heap_observer, observer = RecordingObserver(), RecordingObserver()
    dual = AsyncDualMemoryLimiter.create(
        heap_limit_bytes=1,
        heap_max_queue=2,
        heap_timeout_seconds=3.0,
        direct_limit_bytes=4,
        direct_max_queue=5,
        direct_timeout_seconds=6.0,
        clock=clock,
        heap_observer=heap_observer,
        direct_observer=observer,
    )
    assert (dual.heap.name, dual.heap.limit, dual.heap.max_queue, dual.heap.timeout_seconds) == (
        "heap",
        1,
        2,
        3,
    )
    direct = dual.direct
    assert (direct.name, direct.limit, direct.max_queue, direct.timeout_seconds) == ("direct", 4, 5, 6)
    dual.heap.try_acquire(1)
    assert (heap_observer.heard, observer.heard) == (["granted 0"], [])
    dual.direct.try_acquire(1)
    assert observer.heard == ["granted 0"]


@pytest.mark.parametrize("kind", BOTH)
async def test_acquire_update_release_of_each_kind(limiter: AsyncDualMemoryLimiter, kind: LimitType) -> None:
    permit = await limiter.acquire(10, kind, key="a")
    await limiter.update(permit, 30)
    assert limiter.of(kind).held == 30
    assert limiter.of(kind).top_holders(1) == [("a", 30)]
    limiter.release(permit)
    limiter.release(permit)
    assert books_are_zero(limiter.of(kind))


async def test_heap_and_direct_do_not_feel_each_other(limiter: AsyncDualMemoryLimiter) -> None:
    await limiter.acquire(100, LimitType.HEAP_MEMORY)
    waiting = await start(limiter.acquire(1, LimitType.HEAP_MEMORY))
    direct = await limiter.acquire(50, LimitType.DIRECT_MEMORY)
    direct.release()
    assert not waiting.done()
    assert (limiter.heap.held, limiter.direct.held) == (100, 0)


@pytest.mark.parametrize("kind", BOTH)
async def test_queue_timeout_and_cancel_of_each_kind(
    limiter: AsyncDualMemoryLimiter, clock: ManualClock, kind: LimitType
) -> None:
    permit = await limiter.acquire(limiter.of(kind).limit, kind)
    leaving = await start(limiter.acquire(1, kind))
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1, kind)
    leaving.cancel()
    expiring = await start(limiter.acquire(1, kind, timeout_seconds=2.0))
    clock.advance(2.0)
    outcomes = await asyncio.gather(leaving, expiring, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, PermitAcquireTimeout]
    permit.release()
    assert books_are_zero(limiter.of(kind))


@pytest.mark.parametrize("kind", BOTH)
async def test_charge_of_each_kind_can_be_reassigned(limiter: AsyncDualMemoryLimiter, kind: LimitType) -> None:
    charge = Charge("a")
    permit = await limiter.acquire(10, kind, charge=charge)
    charge.reassign("b")
    assert limiter.of(kind).top_holders(9) == [("b", 10)]
    permit.release()


@pytest.mark.parametrize("kind", BOTH)
async def test_own_timeouts_of_each_kind_go_before_the_default(
    limiter: AsyncDualMemoryLimiter, kind: LimitType, clock: ManualClock
) -> None:
    memory = limiter.of(kind)
    first, second = await limiter.acquire(memory.limit, kind), await limiter.acquire(0, kind)
    assert memory.try_update(first, memory.limit + 1)
    acquiring = await start(limiter.acquire(1, kind, timeout_seconds=3.0))
    growing = await start(limiter.update(second, 1, timeout_seconds=3.0))
    clock.advance(3.0)
    await settle()
    for waiting in (acquiring, growing):
        assert waiting.done()
        assert isinstance(waiting.exception(), PermitAcquireTimeout)
    limiter.release(first)
    limiter.release(second)
    assert books_are_zero(memory)


def test_sharing_is_changed_for_both(limiter: AsyncDualMemoryLimiter) -> None:
    for share_by_key in (True, False):
        limiter.set_sharing(share_by_key, 50)
        assert [memory.share_by_key for memory in (limiter.heap, limiter.direct)] == [share_by_key] * 2


async def test_permit_of_neither_is_refused(limiter: AsyncDualMemoryLimiter, clock: ManualClock) -> None:
    foreign = await semaphore(10, clock).acquire(1)
    with pytest.raises(ForeignPermit, match="expected a permit of"):
        limiter.release(foreign)
    with pytest.raises(ForeignPermit, match="expected a permit of"):
        await limiter.update(foreign, 2)


def test_one_semaphore_for_both_is_refused(clock: ManualClock) -> None:
    one = semaphore(10, clock)
    with pytest.raises(ValueError, match="expected two semaphores"):
        AsyncDualMemoryLimiter(one, one)


async def test_close_closes_both(limiter: AsyncDualMemoryLimiter) -> None:
    limiter.close()
    for kind in BOTH:
        with pytest.raises(PermitAcquireAlreadyClosed):
            await limiter.acquire(1, kind)


async def test_mixed_use_by_many_ends_at_zero(clock: ManualClock) -> None:
    limiter = AsyncDualMemoryLimiter(semaphore(100, clock), semaphore(50, clock))

    async def answer(number: int) -> None:
        async with await limiter.acquire(number % 7, LimitType.HEAP_MEMORY, key=number % 5) as heap:
            await asyncio.sleep(0)
            await heap.update(number % 90)
            async with await limiter.acquire(number % 60, LimitType.DIRECT_MEMORY):
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(500):
            group.create_task(answer(number))
    assert books_are_zero(limiter.heap)
    assert books_are_zero(limiter.direct)
