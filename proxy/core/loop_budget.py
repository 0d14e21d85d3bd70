"""Keep the turns of the event loop short when thousands of clients want something in the same one.

The loop reads every socket that has something before anybody else gets a turn. Who finds that this turn has worked
for long enough does the rest later, in order, a few in each turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# One turn works so long for what has arrived; what comes then is only taken note of.
TURN_SECONDS: Final = 0.002
# What is done later starts tasks, whose first steps come all in the next turn: some 60 us each.
LATER_A_TURN: Final = 6


class LoopBudget:
    """Tell when a turn has had enough, and call later what it had no time for."""

    __slots__ = ("_began", "_later", "_loop", "_now", "_quick", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._began: float | None = None
        self._later: deque[Callable[[], None]] = deque()
        self._quick: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._later) + len(self._quick)

    def enough(self) -> bool:
        """Tell whether this turn has worked long enough; to be asked by who is about to work."""
        if self._began is None:
            self._began = self._now()
            self._loop.call_soon(self._over)
            return False
        return self._now() - self._began > TURN_SECONDS

    def later(self, function: Callable[[], None]) -> None:
        """Call `function` soon, behind those that were there before; it must not raise."""
        self._later.append(function)
        self._schedule()

    async def passed(self) -> None:
        """Wait until everybody who is put off now has had his turn."""
        if self._later:
            done = asyncio.Event()
            self.later(done.set)
            await done.wait()

    def later_and_quick(self, function: Callable[[], None]) -> None:
        """Call `function` soon, as many of its kind in a turn as there is time for: it starts nothing."""
        self._quick.append(function)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._serve)

    def _over(self) -> None:
        self._began = None

    def _serve(self) -> None:
        self._scheduled = False
        later, quick = self._later, self._quick
        try:
            for _ in range(min(len(later), LATER_A_TURN)):
                later.popleft()()
            end = self._now() + TURN_SECONDS
            while quick:
                quick.popleft()()
                if self._now() >= end:
                    break
        finally:
            if later or quick:
                self._schedule()
