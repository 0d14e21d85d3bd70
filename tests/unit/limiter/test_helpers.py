"""Test the helpers: the permit ends with the operation, however that ends."""

import asyncio

import pytest

from limiter import (
    AsyncDualMemoryLimiter,
    ForeignPermit,
    LimitType,
    Permit,
    PermitAcquireError,
    PermitAcquireTimeout,
    with_acquired_permits,
    with_updated_permits,
    write_with_direct_permits,
)
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, start

HEAP, DIRECT = LimitType.HEAP_MEMORY, LimitType.DIRECT_MEMORY


@pytest.fixture
def limiter(clock: ManualClock) -> AsyncDualMemoryLimiter:
    return AsyncDualMemoryLimiter(semaphore(100, clock), semaphore(50, clock))


async def refuse(error: PermitAcquireError) -> str:
    return f"refused: asked {error.asked}"


async def unexpected(error: PermitAcquireError) -> str:
    raise AssertionError(f"expected no refusal, got {error}")


async def test_permit_is_held_during_the_operation_and_not_longer(limiter: AsyncDualMemoryLimiter) -> None:
    async def operation(permit: Permit) -> str:
        await asyncio.sleep(0)
        return f"held {limiter.heap.held}"

    assert await with_acquired_permits(limiter, 10, HEAP, operation, unexpected) == "held 10"
    assert books_are_zero(limiter.heap)


async def test_operation_that_raises_releases(limiter: AsyncDualMemoryLimiter) -> None:
    async def operation(permit: Permit) -> str:
        await asyncio.sleep(0)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await with_acquired_permits(limiter, 10, HEAP, operation, unexpected)
    assert books_are_zero(limiter.heap)


async def test_function_that_raises_before_it_is_awaited_releases(limiter: AsyncDualMemoryLimiter) -> None:
    def operation(permit: Permit) -> "asyncio.Future[str]":
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await with_acquired_permits(limiter, 10, HEAP, operation, unexpected)
    assert books_are_zero(limiter.heap)


async def test_cancelled_operation_releases(limiter: AsyncDualMemoryLimiter) -> None:
    async def operation(permit: Permit) -> str:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    task = await start(with_acquired_permits(limiter, 10, HEAP, operation, unexpected))
    assert limiter.heap.held == 10
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert books_are_zero(limiter.heap)


async def test_acquire_error_goes_to_the_handler(limiter: AsyncDualMemoryLimiter, clock: ManualClock) -> None:
    permit = await limiter.acquire(100, HEAP)

    async def operation(permit: Permit) -> str:
        raise AssertionError("must not run")

    task = await start(with_acquired_permits(limiter, 10, HEAP, operation, refuse))
    clock.advance(25.0)
    assert await task == "refused: asked 10"
    permit.release()
    assert books_are_zero(limiter.heap)


async def test_acquire_error_of_the_operation_itself_is_not_the_handlers(
    limiter: AsyncDualMemoryLimiter,
) -> None:
    await limiter.acquire(50, DIRECT)

    async def operation(permit: Permit) -> str:
        await limiter.acquire(1, DIRECT, timeout_seconds=0)
        return "not reached"

    with pytest.raises(PermitAcquireTimeout):
        await with_acquired_permits(limiter, 10, HEAP, operation, unexpected)
    assert books_are_zero(limiter.heap)


async def test_permit_released_inside_the_operation_is_not_released_twice(
    limiter: AsyncDualMemoryLimiter,
) -> None:
    other = await limiter.acquire(7, HEAP)

    async def operation(permit: Permit) -> str:
        permit.release()
        return "done"

    await with_acquired_permits(limiter, 10, HEAP, operation, unexpected)
    assert limiter.heap.held == other.size == 7


async def test_updated_permit_has_the_new_size_and_ends_with_the_operation(
    limiter: AsyncDualMemoryLimiter,
) -> None:
    permit = await limiter.acquire(10, HEAP)

    async def operation(permit: Permit) -> str:
        return f"size {permit.size}"

    assert await with_updated_permits(limiter, permit, 40, operation, unexpected) == "size 40"
    assert books_are_zero(limiter.heap)


async def test_failed_update_leaves_the_old_size_to_the_caller(
    limiter: AsyncDualMemoryLimiter, clock: ManualClock
) -> None:
    first, second = await limiter.acquire(50, HEAP), await limiter.acquire(50, HEAP)
    await limiter.update(first, 60)

    async def operation(permit: Permit) -> str:
        raise AssertionError("must not run")

    task = await start(with_updated_permits(limiter, second, 60, operation, refuse))
    clock.advance(25.0)
    assert await task == "refused: asked 60"
    assert second.size == 50


async def test_updating_inside_acquiring_ends_at_zero(limiter: AsyncDualMemoryLimiter) -> None:
    async def answer(permit: Permit) -> str:
        await asyncio.sleep(0)
        return f"size {permit.size}"

    async def list_topics(permit: Permit) -> str:
        return await with_updated_permits(limiter, permit, 60, answer, unexpected)

    answers = await asyncio.gather(
        *(with_acquired_permits(limiter, 10, HEAP, list_topics, unexpected) for _ in range(50))
    )
    assert set(answers) == {"size 60"}
    assert books_are_zero(limiter.heap)


async def test_misuse_is_raised_to_the_caller(limiter: AsyncDualMemoryLimiter, clock: ManualClock) -> None:
    foreign = await semaphore(10, clock).acquire(1)

    async def operation(permit: Permit) -> str:
        raise AssertionError("must not run")

    with pytest.raises(ForeignPermit):
        await with_updated_permits(limiter, foreign, 2, operation, unexpected)


class Wire:
    """A write that ends when the test says so."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        await self.drained

    @staticmethod
    async def refused(error: PermitAcquireError) -> None:
        raise error


async def test_direct_permit_is_held_until_written(limiter: AsyncDualMemoryLimiter) -> None:
    wire = Wire()
    task = await start(write_with_direct_permits(limiter, 20, lambda: b"body", wire.write, wire.refused))
    assert (wire.written, limiter.direct.held) == ([b"body"], 20)
    wire.drained.set_result(None)
    await task
    assert books_are_zero(limiter.direct)


async def test_nothing_is_encoded_before_the_permit_is_there(limiter: AsyncDualMemoryLimiter) -> None:
    wire = Wire()
    encoded: list[int] = []

    def encode() -> bytes:
        encoded.append(limiter.direct.held)
        return b"body"

    permit = await limiter.acquire(50, DIRECT)
    task = await start(write_with_direct_permits(limiter, 20, encode, wire.write, wire.refused))
    assert encoded == []
    permit.release()
    wire.drained.set_result(None)
    await task
    assert encoded == [20]


async def test_failed_encoding_releases(limiter: AsyncDualMemoryLimiter) -> None:
    wire = Wire()

    def encode() -> bytes:
        raise ValueError("not encodable")

    with pytest.raises(ValueError, match="not encodable"):
        await write_with_direct_permits(limiter, 20, encode, wire.write, wire.refused)
    assert books_are_zero(limiter.direct)


async def test_failed_write_releases(limiter: AsyncDualMemoryLimiter) -> None:
    wire = Wire()
    task = await start(write_with_direct_permits(limiter, 20, lambda: b"body", wire.write, wire.refused))
    wire.drained.set_exception(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        await task
    assert books_are_zero(limiter.direct)


async def test_refused_write_goes_to_the_handler_and_writes_nothing(
    limiter: AsyncDualMemoryLimiter,
) -> None:
    wire = Wire()
    await limiter.acquire(50, DIRECT)
    with pytest.raises(PermitAcquireTimeout):
        await write_with_direct_permits(limiter, 20, lambda: b"body", wire.write, wire.refused, timeout_seconds=0)
    assert wire.written == []


async def test_client_leaving_during_the_write_releases(limiter: AsyncDualMemoryLimiter) -> None:
    wire = Wire()
    task = await start(write_with_direct_permits(limiter, 20, lambda: b"body", wire.write, wire.refused))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert books_are_zero(limiter.direct)
