"""Spread the checks of signatures over the iterations of the event loop.

All CONNECTs that one iteration reads start their tasks in the next, and a check of a signature is one step that nothing
interrupts: 0.2 ms at most for most keys, and 2.5 ms for some (`VerifyingKey.seconds`). Without turns a crowd of tokens,
good or bad, would be one long step for all other clients.

Rule: in one iteration begin checks of `ITERATION_SECONDS` together, or a single check that takes longer. The others
wait in turns: sites take turns, inside a site its networks do, and the checks of a network are in the order of their
arrival (`limiter.fair_line`). So a crowd of one network delays a client of another by one check, and not by all that
wait. A check is charged to the loop's budget, so that less is read beside it.
"""

import asyncio
from typing import Final

from limiter.fair_line import Entry, FairLine
from limiter.sites import path_of
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget

# Base64 and JSON take up to 1.3 ms for 64 KiB (measured, with lists full of empty lists).
PARSE_SECONDS_A_BYTE: Final = 0.00000002
QUICK_TOKEN_BYTES: Final = 4096


class SignatureTurns:
    """The turns of signature checks; a check that finds no other pays no wait. Each step is O(1)."""

    __slots__ = ("_budget", "_line", "_loop", "_next", "_used")

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: LoopBudget) -> None:
        self._loop = loop
        self._budget = budget
        # The turns that wait, with the seconds of each check.
        self._line: FairLine[Entry[tuple[asyncio.Future[None], float]]] = FairLine()
        # Seconds of the checks that this iteration lets begin.
        self._used = 0.0
        self._next: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._line)

    async def wait_to_parse(self, token_bytes: int, network: str) -> None:
        """Wait for the turn of parsing a token of that size; a small one is parsed in the time of its check."""
        if token_bytes > QUICK_TOKEN_BYTES:
            await self.wait(token_bytes * PARSE_SECONDS_A_BYTE, network)

    async def wait(self, seconds: float, network: str) -> None:
        """Wait for the turn of a check that takes about `seconds`; the caller checks at once, without an `await`."""
        if not self._line and self._fits(seconds):
            self._take(seconds)
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        entry = self._line.push(path_of(network), Entry((turn, seconds)))
        try:
            await turn
        except BaseException:
            # A client that has left, or whose time is over, needs no check.
            self._line.remove(entry)
            raise

    def _fits(self, seconds: float) -> bool:
        return not self._used or self._used + seconds <= ITERATION_SECONDS

    def _take(self, seconds: float) -> None:
        self._used += seconds
        self._budget.charge(seconds)
        if self._next is None:
            self._next = self._loop.call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._next, self._used = None, 0.0
        while (head := self._line.head()) is not None:
            turn, seconds = head.item
            # A task that was cancelled in this iteration has not removed its turn yet.
            if turn.done():
                self._line.remove(head)
            elif self._fits(seconds):
                self._take(seconds)
                self._line.pop()
                turn.set_result(None)
            else:
                return
