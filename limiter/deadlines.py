"""The deadlines of all waiters of a semaphore, in one heap and with one timer; the semaphore decides the outcome.

A timer per waiter would stay in the loop after the waiter has left (asyncio drops cancelled timers only when they are
many): at 100,000 requests/s and 30 s that is hundreds of MB for nothing. Here waiters that left are dropped as soon as
they are the majority of the heap. The one timer is not cancelled for a waiter that left: at worst one call finds
nothing to do.
"""

import heapq
from collections.abc import Callable
from operator import attrgetter

from limiter.clock import Clock, Timer
from limiter.permit import Waiter

__all__ = ["NEVER", "Deadlines"]

NEVER = float("inf")
_by_deadline = attrgetter("deadline")


class Deadlines:
    """A heap of waiters that calls `expire(waiter, now)` for each waiter still queued at its deadline."""

    __slots__ = ("_clock", "_expire", "_heap", "_left", "_timer", "_timer_at")

    def __init__(self, clock: Clock, expire: Callable[[Waiter, float], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._heap: list[Waiter] = []
        self._left = 0
        self._timer: Timer | None = None
        self._timer_at = NEVER

    def __len__(self) -> int:
        """Return how many waiters are kept in memory, including waiters that left."""
        return len(self._heap)

    def watch(self, waiter: Waiter) -> None:
        """Watch `waiter`; a waiter without a deadline (`NEVER`) is not kept."""
        if waiter.seconds == NEVER:
            return
        heapq.heappush(self._heap, waiter)
        deadline = waiter.deadline
        if deadline < self._timer_at:
            self._arm(deadline)

    def forget(self, waiter: Waiter) -> None:
        """Count a watched waiter as left; call once, after the waiter left its queue before its deadline."""
        if waiter.seconds == NEVER:
            return
        self._left += 1
        self._drop_left()

    def close(self) -> None:
        """Cancel the timer and drop all waiters."""
        self._heap.clear()
        self._left = 0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at = NEVER

    def _drop_left(self) -> None:
        heap = self._heap
        if self._left * 2 > len(heap):
            # In place, because `_fire` may be iterating. A sorted list is a heap, and sorting a nearly sorted list
            # costs about one pass in C, where heapify would compare in Python.
            heap[:] = [kept for kept in heap if kept.queue is not None]
            heap.sort(key=_by_deadline)
            self._left = 0

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._fire)

    def _fire(self) -> None:
        # A loop may fire early by up to its clock's resolution; the timer's moment still counts as reached.
        now = max(self._clock.time(), self._timer_at)
        self._timer = None
        self._timer_at = NEVER
        heap = self._heap
        try:
            while heap and (heap[0].queue is None or heap[0].deadline <= now):
                waiter = heapq.heappop(heap)
                if waiter.queue is None:
                    self._left -= 1
                else:
                    self._expire(waiter, now)
        finally:
            # Also if `expire` raises: without a timer no other waiter would ever expire.
            # `_left` does not count expired waiters, but the heap size it is compared with does.
            self._drop_left()
            if heap and heap[0].deadline < self._timer_at:
                self._arm(heap[0].deadline)
