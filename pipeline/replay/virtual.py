"""Virtual time and tasks for the reference: what a loop does for the proxy, without waiting and in one fixed order.

Rules: one event, then everything that follows from it at once, first come first served; then the next event. Whoever
is woken runs after those that were woken before, as on asyncio's loop. Nothing here knows a limiter.
"""

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from pipeline.replay.model import Phase

__all__ = ["Stopped", "Task", "TimedOut", "VirtualTime", "Wait"]


class Stopped(Exception):
    """Ends a task from outside: nobody needs it any more."""


class TimedOut(Stopped):
    """Ends a task whose time is over."""


class Wait:
    """Something to `await`: wakes its task with a value, or with an error to raise there.

    `leave` is called when the task is stopped meanwhile: a place in a line is free in that moment.
    """

    def __init__(self, time: "VirtualTime", leave: Callable[[], object] = lambda: None) -> None:
        self._time = time
        self._leave = leave
        self._task: Task | None = None
        self._error: Exception | None = None
        self._value: Any = None
        self.over = False

    def __await__(self) -> Generator["Wait", None, Any]:
        if not self.over:
            yield self
        if self._error is not None:
            raise self._error
        return self._value

    def attach(self, task: "Task") -> None:
        """Remember whom to wake."""
        self._task = task

    def wake(self, value: Any = None, error: Exception | None = None) -> None:
        """End the wait; a second call does nothing."""
        if self.over:
            return
        self.over, self._value, self._error = True, value, error
        if self._task is not None:
            self._time.soon(self._task.step)

    def abandon(self) -> None:
        """End the wait of a task that is being stopped."""
        self.over = True
        self._leave()


class Task:
    """A coroutine that runs until it waits; its first step comes after those that were woken before it."""

    def __init__(self, time: "VirtualTime", coroutine: Coroutine[Wait, None, None]) -> None:
        self._time = time
        self._coroutine = coroutine
        self._waits_for: Wait | None = None
        time.soon(self.step)

    def step(self, error: Exception | None = None) -> None:
        """Go on to the next wait, or to the end."""
        self._waits_for = None
        try:
            wait = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except (StopIteration, Stopped):
            return
        wait.attach(self)
        self._waits_for = wait

    def stop(self, error: Stopped) -> None:
        """Have the task end with `error`; what it waits for is left at once, it hears of it in its turn."""
        wait = self._waits_for
        assert wait is not None, "expected a task that waits"
        self._time.soon(partial(self.step, error))
        wait.abandon()


class VirtualTime:
    """Events by time, phase and order; `now` is in microseconds."""

    def __init__(self) -> None:
        self.now = 0
        self._begun = 0
        self._events: list[tuple[int, int, int, Callable[[], object]]] = []
        self._soon: deque[Callable[[], object]] = deque()

    def soon(self, call: Callable[[], object]) -> None:
        """Call after all that is to be called already, before time goes on."""
        self._soon.append(call)

    def at(self, when: int, phase: Phase, call: Callable[[], object], order: int | None = None) -> None:
        """Call at `when`; within its phase in the order of `order`, by default that of these calls."""
        self._begun += 1
        heapq.heappush(self._events, (when, phase, self._begun if order is None else order, call))

    def sleep(self, duration: int) -> Wait:
        """Give a wait that ends after `duration`."""
        wait = Wait(self)
        self.at(self.now + duration, Phase.DONE, wait.wake)
        return wait

    def run(self) -> None:
        """Let everything happen."""
        while self._events:
            self.now, _, _, call = heapq.heappop(self._events)
            call()
            while self._soon:
                self._soon.popleft()()
