"""Measure the lag of the event loop: how late timers run, and so how much everything else is delayed.

Rule: one timer, ten times a second, at some microseconds each; a loop that is blocked for a second gets one sample of a
second, not ten. Times are the loop's own.
"""

import asyncio
from typing import Final

from proxy.telemetry.durations import Durations

PERIOD_SECONDS: Final = 0.1
WINDOW_SECONDS: Final = 60.0
_SLICES: Final = 6


class LoopLag:
    """The lag of one loop, in `durations`, from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.durations = Durations(loop.time, WINDOW_SECONDS, _SLICES)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        self._wait()

    def stop(self) -> None:
        """Stop measuring; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        due = self._loop.time() + PERIOD_SECONDS
        self._timer = self._loop.call_at(due, self._came, due)

    def _came(self, due: float) -> None:
        # uvloop's timers count milliseconds, so a timer may run a fraction of a millisecond too early.
        self.durations.add(max(0.0, self._loop.time() - due) * 1000)
        self._wait()
