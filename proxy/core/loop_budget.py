"""Limit how long one iteration of the event loop works when thousands of clients want something at the same time.

An iteration of the loop reads every socket that has data before anything else runs. Code that finds the time budget
of this iteration spent defers the rest of its work to later iterations, which do a few pieces each, in order.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# An iteration works this long for data that has arrived; work beyond that is deferred.
ITERATION_SECONDS: Final = 0.002
# Deferred work starts tasks, and their first steps all run in the next iteration: some 60 us each.
DEFERRED_PER_ITERATION: Final = 6


class LoopBudget:
    """The time budget of a loop iteration, and the work that was deferred because the budget was spent."""

    __slots__ = ("_began", "_cheap", "_deferred", "_loop", "_now", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._began: float | None = None
        self._deferred: deque[Callable[[], None]] = deque()
        self._cheap: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._deferred) + len(self._cheap)

    def spent(self) -> bool:
        """Return whether this loop iteration has used up its time budget; call before starting work."""
        if self._began is None:
            self._began = self._now()
            self._loop.call_soon(self._iteration_ended)
            return False
        return self._now() - self._began > ITERATION_SECONDS

    def defer(self, function: Callable[[], None]) -> None:
        """Call `function` in a later iteration, after all functions deferred before; it must not raise."""
        self._deferred.append(function)
        self._schedule()

    async def deferred_done(self) -> None:
        """Wait until every function that is deferred now has been called."""
        if self._deferred:
            done = asyncio.Event()
            self.defer(done.set)
            await done.wait()

    def defer_cheap(self, function: Callable[[], None]) -> None:
        """Call `function`, which starts no task, in a later iteration, with as many others as there is time for."""
        self._cheap.append(function)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run_deferred)

    def _iteration_ended(self) -> None:
        self._began = None

    def _run_deferred(self) -> None:
        self._scheduled = False
        deferred, cheap = self._deferred, self._cheap
        try:
            for _ in range(min(len(deferred), DEFERRED_PER_ITERATION)):
                deferred.popleft()()
            end = self._now() + ITERATION_SECONDS
            while cheap:
                cheap.popleft()()
                if self._now() >= end:
                    break
        finally:
            if deferred or cheap:
                self._schedule()
