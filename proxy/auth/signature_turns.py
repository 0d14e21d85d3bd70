"""Spread the checks of signatures over the iterations of the event loop.

All CONNECTs that one iteration reads start their tasks in the next, and a check of a signature is one step that nothing
interrupts: 0.2 ms at most for most keys, and 2.5 ms for some (`VerifyingKey.seconds`). Without turns a crowd of tokens,
good or bad, would be one long step for all other clients.

Rule: in one iteration begin checks of `ITERATION_SECONDS` together, or a single check that takes longer. The others
wait in the order of their arrival. A check is charged to the loop's budget, so that less is read beside it.
"""

import asyncio
from collections import deque

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget


class SignatureTurns:
    """The turns of signature checks; a check that finds no other pays no wait."""

    __slots__ = ("_budget", "_line", "_loop", "_next", "_used")

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: LoopBudget) -> None:
        self._loop = loop
        self._budget = budget
        self._line: deque[tuple[asyncio.Future[None], float]] = deque()
        # Seconds of the checks that this iteration lets begin.
        self._used = 0.0
        self._next: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._line)

    async def wait(self, seconds: float) -> None:
        """Wait for the turn of a check that takes about `seconds`; the caller checks at once, without an `await`."""
        if self._line or not self._fits(seconds):
            turn: asyncio.Future[None] = self._loop.create_future()
            self._line.append((turn, seconds))
            await turn
        else:
            self._take(seconds)

    def _fits(self, seconds: float) -> bool:
        return not self._used or self._used + seconds <= ITERATION_SECONDS

    def _take(self, seconds: float) -> None:
        self._used += seconds
        self._budget.charge(seconds)
        if self._next is None:
            self._next = self._loop.call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._next, self._used = None, 0.0
        while self._line and (self._line[0][0].done() or self._fits(self._line[0][1])):
            turn, seconds = self._line.popleft()
            # A client that has left, or whose time is over, needs no check.
            if not turn.done():
                self._take(seconds)
                turn.set_result(None)
