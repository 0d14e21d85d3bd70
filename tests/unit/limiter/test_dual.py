"""Test the pair of semaphores, each kind alone, and the helpers that hold a permit of either around an operation."""

import asyncio

import pytest

from limiter import (
    AsyncDualMemoryLimiter,
    ForeignPermit,
    LimitType,
    Permit,
    PermitAcquireAlreadyClosed,
    PermitAcquireError,
    PermitAcquireTimeout,
    with_acquired_permits,
    with_updated_permits,
    write_with_direct_permits,
)
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import RecordingObserver, books_are_zero, semaphore, start

HEAP, DIRECT = LimitType.HEAP_MEMORY, LimitType.DIRECT_MEMORY
both = pytest.mark.parametrize("kind", [HEAP, DIRECT])


@pytest.fixture
def limiter(clock: ManualClock) -> AsyncDualMemoryLimiter:
    return AsyncDualMemoryLimiter(semaphore(100, clock), semaphore(50, clock))


def test_create_hands_each_its_own_numbers(clock: ManualClock) -> None:
    observers = RecordingObserver(), RecordingObserver()
    dual = AsyncDualMemoryLimiter.create(
        heap_limit_bytes=1, heap_max_queue=2, heap_timeout_seconds=3.0, heap_observer=observers[0],
        direct_limit_bytes=4, direct_max_queue=5, direct_timeout_seconds=6.0, direct_observer=observers[1], clock=clock,
    )  # fmt: skip
    made = [(each.name, each.limit, each.max_queue, each.timeout_seconds) for each in (dual.heap, dual.direct)]
    assert made == [("heap", 1, 2, 3), ("direct", 4, 5, 6)]
    dual.heap.try_acquire(1)
    assert [observer.heard for observer in observers] == [["granted 0"], []]
    dual.direct.try_acquire(1)
    assert observers[1].heard == ["granted 0"]


@both
async def test_each_kind_is_acquired_updated_charged_and_released_alone(
    limiter: AsyncDualMemoryLimiter, kind: LimitType, clock: ManualClock
) -> None:
    memory = limiter.of(kind)
    permit = await limiter.acquire(10, kind, key="a")
    await limiter.update(permit, memory.limit)
    assert memory.top_holders(1) == [("a", memory.limit)]
    acquiring = await start(limiter.acquire(1, kind, key="c", timeout_seconds=3.0))
    second = await limiter.acquire(0, kind)
    assert memory.try_update(permit, memory.limit + 1)
    growing = await start(limiter.update(second, 1, timeout_seconds=3.0))
    clock.advance(3.0)
    for waiting in (acquiring, growing):
        with pytest.raises(PermitAcquireTimeout):
            await waiting
    limiter.release(permit)
    limiter.release(second)
    assert books_are_zero(limiter.heap)
    assert books_are_zero(limiter.direct)


@both
async def test_settings_and_close_are_for_both(limiter: AsyncDualMemoryLimiter, kind: LimitType) -> None:
    for share_by_key in (True, False):
        limiter.set_sharing(share_by_key, 50)
        assert limiter.of(kind).share_by_key is share_by_key
    limiter.close()
    with pytest.raises(PermitAcquireAlreadyClosed):
        await limiter.acquire(1, kind)


async def test_a_permit_of_neither_and_one_semaphore_for_both_are_refused(
    limiter: AsyncDualMemoryLimiter, clock: ManualClock
) -> None:
    foreign = await semaphore(10, clock).acquire(1)
    with pytest.raises(ForeignPermit, match="expected a permit of"):
        limiter.release(foreign)
    with pytest.raises(ForeignPermit, match="expected a permit of"):
        await limiter.update(foreign, 2)
    with pytest.raises(ValueError, match="expected two semaphores"):
        AsyncDualMemoryLimiter(limiter.heap, limiter.heap)


# --- helpers --------------------------------------------------------------------------------------


async def refuse(error: PermitAcquireError) -> str:
    return f"refused: asked {error.asked}"


async def test_a_permit_is_held_during_an_operation_and_not_longer_however_it_ends(
    limiter: AsyncDualMemoryLimiter,
) -> None:
    async def list_topics(permit: Permit) -> str:
        async def answer(permit: Permit) -> str:
            return f"held {limiter.heap.held}"

        return await with_updated_permits(limiter, permit, 60, answer, refuse)

    async def crashes(permit: Permit) -> str:
        raise ConnectionResetError

    async def never_ends(permit: Permit) -> str:
        await asyncio.Event().wait()
        return "not reached"

    async def is_refused_itself(permit: Permit) -> str:
        await limiter.acquire(100, HEAP, timeout_seconds=0)
        return "not reached"

    assert await with_acquired_permits(limiter, 10, HEAP, list_topics, refuse) == "held 60"
    for operation, error in ((crashes, ConnectionResetError), (is_refused_itself, PermitAcquireTimeout)):
        with pytest.raises(error):
            await with_acquired_permits(limiter, 10, HEAP, operation, refuse)
    task = await start(with_acquired_permits(limiter, 10, HEAP, never_ends, refuse))
    assert limiter.heap.held == 10
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert books_are_zero(limiter.heap)


async def test_a_refusal_goes_to_the_handler_and_leaves_the_old_size_to_the_caller(
    limiter: AsyncDualMemoryLimiter, clock: ManualClock
) -> None:
    async def must_not_run(permit: Permit) -> str:
        raise AssertionError

    first, second = await limiter.acquire(50, HEAP), await limiter.acquire(50, HEAP)
    await limiter.update(first, 60)
    tasks = [
        await start(with_updated_permits(limiter, second, 60, must_not_run, refuse)),
        await start(with_acquired_permits(limiter, 10, HEAP, must_not_run, refuse)),
    ]
    clock.advance(25.0)
    assert [await task for task in tasks] == ["refused: asked 60", "refused: asked 10"]
    assert second.size == 50


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
async def test_direct_memory_is_held_from_before_the_encoding_until_written(
    limiter: AsyncDualMemoryLimiter, error: Exception | None
) -> None:
    written, drained = list[bytes](), asyncio.get_running_loop().create_future()

    async def write(data: bytes) -> None:
        written.append(data)
        await drained

    async def refused(error: PermitAcquireError) -> None:
        written.append(b"refused")

    def encode() -> bytes:
        return b"held %d" % limiter.direct.held

    permit = await limiter.acquire(50, DIRECT)
    await write_with_direct_permits(limiter, 20, encode, write, refused, timeout_seconds=0)
    task = await start(write_with_direct_permits(limiter, 20, encode, write, refused))
    assert written == [b"refused"]
    permit.release()
    await asyncio.sleep(0)
    if error is None:
        drained.set_result(None)
    else:
        drained.set_exception(error)
    assert [*await asyncio.gather(task, return_exceptions=True)] == [error]
    assert written == [b"refused", b"held 20"]
    assert books_are_zero(limiter.direct)
