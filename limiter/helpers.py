"""Own the patterns of PIP-442 that hold a permit around an operation; know no connection and no encoding.

Rule: a permit is released when the operation has ended, however it ended, and by nobody else before. Only
what ended the wait for permits goes to the error handler; what the operation raises goes to the caller, and
so does misuse.
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
    """Acquire `size` bytes, run `function` with the permit, release it; the result is that of either."""
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
    """Change `permit` to `size` bytes, run `function` with it, release it.

    After a failed update `on_error` runs while the old size is still held; its release is then the caller's,
    who usually stands inside `with_acquired_permits`.
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

    `write` must return only when the bytes have left this process's memory: the permit ends with it. The
    caller may hold heap, but must not acquire heap from inside.
    """
    try:
        permit = await limiter.acquire(size, LimitType.DIRECT_MEMORY, key=key, timeout_seconds=timeout_seconds)
    except PermitAcquireError as error:
        await on_error(error)
        return
    with permit:
        await write(encode())
