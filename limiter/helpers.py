"""The patterns of PIP-442 that hold a permit around an operation.

Rule: a permit is released when the operation has ended, in whatever way, and not before. The error handler gets only
errors that ended the wait for permits; exceptions of the operation, and misuse, go to the caller.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from limiter.dual import AsyncDualMemoryLimiter, LimitType
from limiter.errors import PermitAcquireError
from limiter.permit import Permit

__all__ = ["with_acquired_permits", "with_updated_permits", "write_with_direct_permits"]

T = TypeVar("T")
Encoded = TypeVar("Encoded")


async def with_acquired_permits(
    limiter: AsyncDualMemoryLimiter,
    size: int,
    limit_type: LimitType,
    function: Callable[[Permit], Awaitable[T]],
    on_error: Callable[[PermitAcquireError], Awaitable[T]],
    *,
    key: Hashable = None,
    timeout_seconds: float | None = None,
) -> T:
    """Acquire `size` bytes, run `function` with the permit, release; return the result of `function` or `on_error`."""
    try:
        permit = await limiter.acquire(size, limit_type, key=key, timeout_seconds=timeout_seconds)
    except PermitAcquireError as error:
        return await on_error(error)
    with permit:
        return await function(permit)


async def with_updated_permits(
    limiter: AsyncDualMemoryLimiter,
    permit: Permit,
    size: int,
    function: Callable[[Permit], Awaitable[T]],
    on_error: Callable[[PermitAcquireError], Awaitable[T]],
    *,
    timeout_seconds: float | None = None,
) -> T:
    """Change `permit` to `size` bytes, run `function` with the permit, release the permit.

    After a failed update, `on_error` runs while the old size is still held and the caller releases the permit, usually
    at the end of `with_acquired_permits`.
    """
    try:
        await limiter.update(permit, size, timeout_seconds=timeout_seconds)
    except PermitAcquireError as error:
        return await on_error(error)
    with permit:
        return await function(permit)


async def write_with_direct_permits(
    limiter: AsyncDualMemoryLimiter,
    size: int,
    encode: Callable[[], Encoded],
    write: Callable[[Encoded], Awaitable[None]],
    on_error: Callable[[PermitAcquireError], Awaitable[None]],
    *,
    key: Hashable = None,
    timeout_seconds: float | None = None,
) -> None:
    """Acquire `size` bytes of direct memory, then encode, write, and release when written or failed.

    `write` must return only when the bytes have left this process's memory, because the permit ends then. The caller
    may hold heap, but `encode` and `write` must not acquire heap.
    """
    try:
        permit = await limiter.acquire(size, LimitType.DIRECT_MEMORY, key=key, timeout_seconds=timeout_seconds)
    except PermitAcquireError as error:
        await on_error(error)
        return
    with permit:
        await write(encode())
