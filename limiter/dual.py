"""The pair of semaphores of PIP-442: heap for decoded lists, direct for encoded bytes not yet sent.

Rule: a caller that needs both acquires heap first, then direct, and never acquires heap while it holds direct; so the
two memories cannot wait for each other in a circle.
"""

import enum
from collections.abc import Coroutine, Hashable
from typing import Any

from limiter.clock import Clock
from limiter.errors import ForeignPermit
from limiter.observer import LimiterObserver
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore

__all__ = ["AsyncDualMemoryLimiter", "LimitType"]


class LimitType(enum.Enum):
    """The two memories."""

    HEAP_MEMORY = "heap"
    DIRECT_MEMORY = "direct"


class AsyncDualMemoryLimiter:
    """Heap and direct memory, each with its own limit, queue and timeout."""

    __slots__ = ("direct", "heap")

    def __init__(self, heap: AsyncSemaphore, direct: AsyncSemaphore) -> None:
        if heap is direct:
            raise ValueError(f"expected two semaphores, got {heap!r} twice")
        self.heap = heap
        self.direct = direct

    @classmethod
    def create(
        cls,
        *,
        heap_limit_bytes: int,
        heap_max_queue: int,
        heap_timeout_seconds: float,
        direct_limit_bytes: int,
        direct_max_queue: int,
        direct_timeout_seconds: float,
        clock: Clock,
        heap_observer: LimiterObserver | None = None,
        direct_observer: LimiterObserver | None = None,
    ) -> "AsyncDualMemoryLimiter":
        """Return a limiter with both semaphores, from the six numbers of PIP-442."""
        heap = AsyncSemaphore(
            LimitType.HEAP_MEMORY.value,
            heap_limit_bytes,
            max_queue=heap_max_queue,
            timeout_seconds=heap_timeout_seconds,
            clock=clock,
            observer=heap_observer,
        )
        direct = AsyncSemaphore(
            LimitType.DIRECT_MEMORY.value,
            direct_limit_bytes,
            max_queue=direct_max_queue,
            timeout_seconds=direct_timeout_seconds,
            clock=clock,
            observer=direct_observer,
        )
        return cls(heap, direct)

    def of(self, limit_type: LimitType) -> AsyncSemaphore:
        """Return the semaphore of that memory."""
        return self.heap if limit_type is LimitType.HEAP_MEMORY else self.direct

    # The coroutines below are the semaphores' own: a coroutine in between could be dropped half-way.

    def acquire(
        self,
        size: int,
        limit_type: LimitType,
        *,
        key: Hashable = None,
        timeout_seconds: float | None = None,
    ) -> Coroutine[Any, Any, Permit]:
        """Acquire `size` bytes of that memory; see `AsyncSemaphore.acquire`."""
        return self.of(limit_type).acquire(size, key=key, timeout_seconds=timeout_seconds)

    def update(self, permit: Permit, size: int, *, timeout_seconds: float | None = None) -> Coroutine[Any, Any, Permit]:
        """Change a permit of either memory to `size` bytes; see `AsyncSemaphore.update`."""
        return self._owner(permit).update(permit, size, timeout_seconds=timeout_seconds)

    def release(self, permit: Permit) -> None:
        """Release a permit of either memory; a second call does nothing."""
        self._owner(permit).release(permit)

    def set_sharing(self, share_by_key: bool, key_cap_percent: int) -> None:
        """Change how both share; see `AsyncSemaphore.set_sharing`."""
        self.heap.set_sharing(share_by_key, key_cap_percent)
        self.direct.set_sharing(share_by_key, key_cap_percent)

    def close(self) -> None:
        """Close both; see `AsyncSemaphore.close`."""
        self.heap.close()
        self.direct.close()

    def _owner(self, permit: Permit) -> AsyncSemaphore:
        if permit.owner is self.heap:
            return self.heap
        if permit.owner is self.direct:
            return self.direct
        raise ForeignPermit(f"expected a permit of {self.heap!r} or {self.direct!r}, got {permit!r}")
