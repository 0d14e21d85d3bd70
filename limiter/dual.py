"""The pair of semaphores of PIP-442: heap for decoded lists, direct for encoded bytes not yet sent.

Rule: a caller that needs both acquires heap first, then direct, and never acquires heap while it holds direct; so the
two memories cannot wait for each other in a circle.
"""

from limiter.semaphore import AsyncSemaphore

__all__ = ["AsyncDualMemoryLimiter"]


class AsyncDualMemoryLimiter:
    """Heap and direct memory, each with its own limit, queue and timeout."""

    __slots__ = ("direct", "heap")

    def __init__(self, heap: AsyncSemaphore, direct: AsyncSemaphore) -> None:
        self.heap = heap
        self.direct = direct

    def set_sharing(self, share_by_key: bool, key_cap_percent: int) -> None:
        """Change how both share; see `AsyncSemaphore.set_sharing`."""
        self.heap.set_sharing(share_by_key, key_cap_percent)
        self.direct.set_sharing(share_by_key, key_cap_percent)

    def close(self) -> None:
        """Close both; see `AsyncSemaphore.close`."""
        self.heap.close()
        self.direct.close()
