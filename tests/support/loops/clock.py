"""Own virtual time for everything that takes a `limiter.clock.Clock`: it moves only when a test moves it."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class ManualTimer:
    """A callback at a moment of virtual time."""

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments

    @property
    def cancelled(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(*self._arguments)


class ManualClock:
    """A clock that stands still; `advance` runs what became due, in order, each at its own moment.

    Unlike a loop it runs callbacks inside `advance`, so a test sees their effect at once; callbacks of the
    same moment run in the order in which they were asked for. `tick` is how much it goes on whenever it is read.
    """

    def __init__(self, start: float = 1000.0, tick: float = 0.0) -> None:
        self._now = start
        self._tick = tick
        self._order = itertools.count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def time(self) -> float:
        self._now += self._tick
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> ManualTimer:
        timer = ManualTimer(callback, args)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            timer.fire()
        self._now = end

    @property
    def pending(self) -> int:
        """Return how many timers would still fire."""
        return sum(not timer.cancelled for _, _, timer in self._timers)
