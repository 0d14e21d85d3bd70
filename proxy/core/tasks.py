"""The tasks of a connection: all end with the connection, and only its owner handles a crash of a task.

The only module that creates tasks. An `asyncio.TaskGroup` would need one more task per connection to hold the group
open, and most connections of a proxy are idle.

The clocks of requests are coarse and share a timer: a timer for each of thousands of requests costs memory and a heap's
work, for deadlines that nearly never come.

A pause before a server is asked again that a whole fleet of proxies shares is spread: up to a quarter shorter, never
longer, so that what a page says of the longest pause stays true. A time-out that counts from a request's own arrival
needs none: it repeats the pattern of arrivals, and makes no new herd (docs/adr/0058).
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from limiter.clock import Clock, Timer

T = TypeVar("T")

# A deadline passes at most this much too late.
STEP_SECONDS: Final = 0.05
# The largest random part of a pause.
SPREAD_PART: Final = 0.25

Draw = Callable[[], float]


def spread(seconds: float, draw: Draw = random.random) -> float:
    """Return a pause that is up to a quarter shorter; `draw` returns numbers from 0 to 1."""
    return seconds * (1 - SPREAD_PART * draw())


class TaskScope:
    """Starts tasks that are cancelled together; `on_crash` is called with any exception but a cancellation."""

    __slots__ = ("_closed", "_on_crash", "_tasks")

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        # None without a task: each client at rest has a scope. A dictionary has an order, and is a third of a set.
        self._tasks: dict[asyncio.Task[None], None] | None = None
        self._on_crash = on_crash
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks or ())

    def start(
        self, coroutine: Coroutine[Any, Any, None], on_end: Callable[[], None] | None = None
    ) -> Callable[[], object]:
        """Run `coroutine` until it ends or the scope is cancelled; a cancelled scope starts nothing.

        Return a callable that cancels only this task.

        `on_end` is called once in any case, also for a coroutine that never began, and must release everything that
        the coroutine was given to hold.
        """
        if self._closed:
            coroutine.close()
            if on_end is not None:
                on_end()
            return do_nothing
        task = asyncio.get_running_loop().create_task(coroutine)
        if self._tasks is None:
            self._tasks = {}
        self._tasks[task] = None
        task.add_done_callback(self._ended if on_end is None else partial(self._ended, on_end=on_end))
        return task.cancel

    def cancel(self) -> None:
        """Cancel every task, the newest first, and refuse new ones."""
        for task in self.close():
            task.cancel()

    def close(self) -> list[asyncio.Task[None]]:
        """Refuse new tasks; return the tasks under way, all of which the caller cancels (`task_turns.LeaveTurns`).

        The newest are first: an older one that ended would hand its turn to one that ends next.
        """
        self._closed = True
        return list(reversed(self._tasks or {}))

    async def emptied(self) -> None:
        """Wait until all tasks have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None], on_end: Callable[[], None] | None = None) -> None:
        if self._tasks is not None:
            self._tasks.pop(task, None)
            if not self._tasks:
                self._tasks = None
        if on_end is not None:
            on_end()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def do_nothing() -> None:
    """Stand in for a callback that is not set."""


def call_each(calls: Iterable[Callable[[], object]], on_crash: Callable[[BaseException], None]) -> None:
    """Call all of `calls`: an exception of one is passed to `on_crash`, and keeps none of the others from its turn."""
    for call in calls:
        try:
            call()
        except Exception as error:
            on_crash(error)


class CoarseDeadlines(Generic[T]):
    """Members by the step in which their deadline passes; `expire` is called with each that is still there then.

    Members of one step share a dictionary, so a member that leaves early leaves nothing behind.
    """

    __slots__ = ("_clock", "_due", "_expire", "_steps", "_timer", "_timer_step")

    def __init__(self, clock: Clock, expire: Callable[[T], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._due: dict[int, dict[T, None]] = {}
        # A heap of the steps in `_due`, and of steps whose members have all left.
        self._steps: list[int] = []
        self._timer: Timer | None = None
        self._timer_step = 0

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def add(self, member: T, deadline: float) -> int:
        """Add a member; return its step, which `remove` needs."""
        step = int(deadline / STEP_SECONDS) + 1
        members = self._due.get(step)
        if members is None:
            members = self._due[step] = {}
            heapq.heappush(self._steps, step)
            if self._timer is None or step < self._timer_step:
                self._arm(step)
        members[member] = None
        return step

    def remove(self, member: T, step: int) -> None:
        """Remove a member from its step; do nothing if the member has expired."""
        members = self._due.get(step)
        if members is not None:
            members.pop(member, None)
            if not members:
                del self._due[step]

    def now(self) -> float:
        """Return the time of the clock."""
        return self._clock.time()

    def _arm(self, step: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_step = step
        self._timer = self._clock.call_at(step * STEP_SECONDS, self._fire)

    def _fire(self) -> None:
        # A loop may fire early by up to its clock's resolution; the timer's moment still counts as reached.
        reached = max(int(self._clock.time() / STEP_SECONDS), self._timer_step)
        self._timer = None
        due, steps = self._due, self._steps
        expired: deque[T] = deque()
        # Steps that are empty are dropped here: the timer need not fire for them.
        while steps and (steps[0] <= reached or steps[0] not in due):
            expired.extend(due.pop(heapq.heappop(steps), ()))
        if steps:
            self._arm(steps[0])
        self._expire_all(expired)

    def _expire_all(self, expired: deque[T]) -> None:
        try:
            while expired:
                self._expire(expired.popleft())
        finally:
            # The loop reports what one of them raises, and the others expire in its next iteration.
            if expired:
                self._clock.call_at(self._clock.time(), partial(self._expire_all, expired))


class TaskClock:
    """Cancel the task that runs a `with` block at a deadline, and raise TimeoutError there: as `asyncio.timeout_at`.

    `deadlines` calls `run_out`. `stop` ends the clock, unless it has run out already, and notes when that was.
    """

    __slots__ = ("_cancelling", "_deadline", "_deadlines", "_expired", "_step", "_task", "stopped", "stopped_at")

    def __init__(self, deadlines: CoarseDeadlines["TaskClock"], deadline: float) -> None:
        self._deadlines = deadlines
        self._deadline = deadline
        self._expired = self.stopped = False
        self.stopped_at: float | None = None
        self._step = 0
        self._cancelling = 0
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> "TaskClock":
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._step = self._deadlines.add(self, self._deadline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.remove(self, self._step)
        # A cancelled task knows its frames: a clock that knew the task would keep what they hold.
        task, self._task = self._task, None
        assert task is not None
        if self._expired and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def stop(self) -> None:
        """End the clock: what it limits has begun; only the first call counts."""
        if not self.stopped:
            self.stopped, self.stopped_at = True, self._deadlines.now()

    def run_out(self) -> None:
        """Cancel the task, unless the clock was stopped."""
        if self._task is not None and not self.stopped:
            self._expired = True
            self._task.cancel()
