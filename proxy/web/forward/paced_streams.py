"""Give the streams of tunnels turns at the event loop: a tunnel with bytes is no better than any other busy connection.

asyncio's streams ask for no turn: an iteration would read every tunnel that has bytes, and run a task for each piece.
When the time of an iteration is spent, a tunnel is not read on until its turn among the frames of clients comes: turns
by key, then by tunnel.
"""

import asyncio
from collections.abc import Hashable
from typing import Any, Final

from proxy.core.loop_budget import LoopBudget

# Passing a piece takes about this long: two steps of a task, a write, and what the socket brings.
PIECE_SECONDS: Final = 0.0001


class StreamTurns:
    """The turns of one tunnel, whose key is `key`."""

    __slots__ = ("_budget", "_key")

    def __init__(self, budget: LoopBudget, key: Hashable) -> None:
        self._budget = budget
        self._key = key

    def arrived(self, reader: asyncio.StreamReader) -> None:
        """Stop reading, if the time of this iteration is spent: libuv reads a socket up to 32 times in one."""
        if self._budget.spent():
            rest(reader)

    async def wait(self, reader: asyncio.StreamReader) -> None:
        """Wait for the turn of a piece that was read from `reader`, which is not read meanwhile."""
        if self._budget.spent():
            rest(reader)
            await self._budget.client_turn(self._key, PIECE_SECONDS)


def rest(reader: asyncio.StreamReader) -> None:
    """Pause the socket of a reader, until the next `read` that finds the reader as good as empty."""
    # As the reader does by itself when it is full: no public method pauses a reader so that it resumes by itself.
    state: Any = reader
    if state._transport is not None and not state._paused and not state._transport.is_closing():
        state._transport.pause_reading()
        state._paused = True
