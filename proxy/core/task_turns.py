"""Let many tasks go on a few at a time: whatever ends the waits of thousands must not run them all in one iteration."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from proxy.core.loop_budget import TASK_SECONDS, LoopBudget
from proxy.core.tasks import call_each

# An iteration lets this many tasks go on: each works for some 0.1 ms, and others have work, too.
TASKS_PER_TURN: Final = 6
# An iteration has this share for clients that leave: 24 cancelled tasks, or 12 connections. An iteration starts 20
# requests at most: clients that come and leave again and again start no tasks faster than those of the clients before
# them end.
LEAVING_MICROS: Final = 600
# A lookup's task works about this long for its end, a topic list's somewhat longer.
CANCEL_MICROS: Final = 25
# A connection takes about this long to close, and to be forgotten.
LEAVE_MICROS: Final = 50


class Cancellable(Protocol):
    """A task, or a request that waits without a task."""

    def cancel(self) -> object:
        """End the work; do nothing if it has ended."""


class TaskTurns:
    """Functions that each let a task go on, in their order; `on_crash` hears of an exception, and others go on."""

    __slots__ = ("_budget", "_calls", "_on_crash", "_under_way")

    def __init__(self, budget: LoopBudget, on_crash: Callable[[BaseException], None]) -> None:
        self._budget = budget
        self._on_crash = on_crash
        self._calls: deque[Callable[[], None]] = deque()
        self._under_way = False

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, calls: Iterable[Callable[[], None]]) -> None:
        """Call the first few functions at once, unless others wait, and the rest in later turns of the loop budget."""
        self._calls.extend(calls)
        if not self._under_way:
            self._take_turn()

    def finish(self) -> None:
        """Call all functions that are left, at once: nothing goes on behind a shutdown."""
        while self._calls:
            call_each((self._calls.popleft(),), self._on_crash)

    def _take_turn(self) -> None:
        self._under_way = True
        try:
            for _ in range(TASKS_PER_TURN):
                if not self._calls:
                    break
                self._budget.charge(TASK_SECONDS)
                call_each((self._calls.popleft(),), self._on_crash)
        finally:
            # Also if `on_crash` raises: nobody else would ever go on.
            self._under_way = bool(self._calls)
            if self._calls:
                self._budget.defer_cheap(self._take_turn)


class PacedWaiters:
    """Tasks that wait for the same event, in their order: `wake` lets all of them go on, in turns.

    A future that all of them share would let them go on in one iteration of the loop. A task that has gone on looks
    again at what it waited for: that may have changed while the task stood in line.
    """

    __slots__ = ("_turns", "_waiters")

    def __init__(self, turns: TaskTurns) -> None:
        self._turns = turns
        self._waiters: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self) -> None:
        """Wait for the next `wake`; a task that leaves ends nobody else's wait."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Call when the event has come: every task that waits now goes on in its turn."""
        waiters, self._waiters = self._waiters, {}
        self._turns.add([partial(_end_wait, waiter) for waiter in waiters])


class LeaveTurns:
    """Ends of clients that have left, a few in each iteration: connections, tasks that hold memory, all other tasks.

    These ends do not stand in a line of the loop budget: the longer that line, the later the permits of those that have
    left would come back.

    The end of a client has its tasks cancelled here, too: what is called from inside a step joins the line. Otherwise
    the ends of a thousand clients would stand on one stack. An exception ends one step only, and `on_crash`
    hears of it.
    """

    __slots__ = ("_budget", "_first", "_leaving", "_left", "_loop", "_on_crash", "_others", "_scheduled", "_under_way")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budget: LoopBudget, on_crash: Callable[[BaseException], None]
    ) -> None:
        self._loop = loop
        self._budget = budget
        self._on_crash = on_crash
        self._leaving: deque[Callable[[], None]] = deque()
        self._first: deque[deque[Cancellable]] = deque()
        self._others: deque[deque[Cancellable]] = deque()
        # The rest of this iteration's share.
        self._left = LEAVING_MICROS
        self._scheduled = False
        self._under_way = False

    def __len__(self) -> int:
        return len(self._leaving) + sum(map(len, self._first)) + sum(map(len, self._others))

    def leave(self, function: Callable[[], None]) -> None:
        """Call `function`, which closes a connection: at once, or in turns with others."""
        self._leaving.append(function)
        self._take_turn()

    def cancel(self, tasks: Iterable[Cancellable], *, first: bool = False) -> None:
        """Cancel all `tasks` in their order: as many as this iteration has time for, the rest in later iterations.

        `first`: the tasks may hold memory.
        """
        if leaving := deque(tasks):
            (self._first if first else self._others).append(leaving)
            self._take_turn()

    def finish(self) -> None:
        """End all that is left, at once: nothing goes on behind a shutdown."""
        self._under_way = True
        try:
            while self._step():
                pass
        finally:
            self._under_way = False

    def _take_turn(self) -> None:
        if self._under_way:
            return
        self._under_way = True
        try:
            while self._left > 0 and (micros := self._step()):
                self._left -= micros
                self._budget.charge(micros / 1_000_000)
        finally:
            # Also if `on_crash` raises: nobody else would ever go on.
            self._under_way = False
            if not self._scheduled and (self._left < LEAVING_MICROS or self._leaving or self._first or self._others):
                self._scheduled = True
                self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._scheduled = False
        self._left = LEAVING_MICROS
        self._take_turn()

    def _step(self) -> int:
        """Take one step, and return what it costs; 0 if nothing is left to do."""
        if self._leaving:
            call_each((self._leaving.popleft(),), self._on_crash)
            return LEAVE_MICROS
        lists = self._first or self._others
        if not lists:
            return 0
        tasks = lists[0]
        task = tasks.popleft()
        if not tasks:
            lists.popleft()
        call_each((task.cancel,), self._on_crash)
        return CANCEL_MICROS


def _end_wait(waiter: asyncio.Future[None]) -> None:
    # The task may have left.
    if not waiter.done():
        waiter.set_result(None)
