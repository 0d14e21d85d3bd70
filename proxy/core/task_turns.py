"""Let many tasks go on a few at a time: whatever ends the waits of thousands must not run them all in one iteration."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from proxy.core.loop_budget import TASK_SECONDS, LoopBudget

# An iteration lets this many tasks go on: each works for some 0.1 ms, and others have work, too.
TASKS_PER_TURN: Final = 6


class TaskTurns:
    """Functions that each let a task go on, called in their order; they must not raise."""

    __slots__ = ("_budget", "_calls", "_under_way")

    def __init__(self, budget: LoopBudget) -> None:
        self._budget = budget
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
            self._calls.popleft()()

    def _take_turn(self) -> None:
        self._under_way = True
        for _ in range(TASKS_PER_TURN):
            if not self._calls:
                break
            self._budget.charge(TASK_SECONDS)
            self._calls.popleft()()
        if self._calls:
            self._budget.defer_cheap(self._take_turn)
        else:
            self._under_way = False
