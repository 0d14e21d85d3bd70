"""Limit how long one iteration of the event loop works when thousands of peers want something at the same time.

An iteration of the loop reads every socket that has data before anything else runs. Code that finds the time budget
of this iteration spent defers the rest of its work to later iterations. Deferred work waits in one line, in the order
of its arrival, and a connection that has had its turn joins the line at its end: so busy connections take turns, and
however many there are, together they get one budget an iteration.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# An iteration works this long for data that has arrived; work beyond that is deferred.
ITERATION_SECONDS: Final = 0.002
# Deferred work starts tasks, and their first steps all run in the next iteration: some 60 us each.
DEFERRED_PER_ITERATION: Final = 6
# A request's task works about this long until its question is written to a broker; so does a task that was answered.
TASK_SECONDS: Final = 0.0001


class LoopBudget:
    """The time budget of a loop iteration, and the work that was deferred because the budget was spent."""

    __slots__ = ("_began", "_charged", "_cheap", "_deferred", "_ending", "_loop", "_scheduled", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        # The clock, also for callers that charge for measured work.
        self.now = now
        self._began: float | None = None
        self._charged = 0.0
        self._ending = False
        self._deferred: deque[Callable[[], None]] = deque()
        self._cheap: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._deferred) + len(self._cheap)

    def spent(self) -> bool:
        """Return whether this loop iteration has used up its time budget; call before starting work."""
        if self._began is None:
            self._begin()
            return False
        return self.now() - self._began + self._charged > ITERATION_SECONDS

    def charge(self, seconds: float) -> None:
        """Count work of `seconds` that this iteration has brought about and that is done after it."""
        if self._began is None:
            self._begin()
        self._charged += seconds

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
        """Call `function` in a later iteration, with as many others as the budget has time for.

        A function that starts tasks, or lets a socket be read, charges for it.
        """
        self._cheap.append(function)
        self._schedule()

    def _begin(self) -> None:
        self._began = self.now()
        self._charged = 0.0
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._iteration_ended)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run_deferred)

    def _iteration_ended(self) -> None:
        self._ending = False
        self._began = None

    def _run_deferred(self) -> None:
        self._scheduled = False
        deferred, cheap = self._deferred, self._cheap
        try:
            for _ in range(min(len(deferred), DEFERRED_PER_ITERATION)):
                deferred.popleft()()
            if cheap:
                # The sockets that are read right after, in this iteration, share this budget.
                self._begin()
                # Work that is deferred again meanwhile has had its turn.
                for _ in range(len(cheap)):
                    cheap.popleft()()
                    if self.spent():
                        break
        finally:
            if deferred or cheap:
                self._schedule()
