"""Tasks that all may go on are let go a few in an iteration, in their order, and none is forgotten."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from typing import Any

from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TASKS_PER_TURN, TaskTurns
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual


class Bench:
    """Turns of tasks, and what was called."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, loop.time)
        self.turns = TaskTurns(self.budget)
        self.called: list[int] = []

    def calls(self, numbers: range) -> list[Callable[[], None]]:
        return [partial(self.called.append, number) for number in numbers]


def played(play: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await play(Bench())

    run_virtual(main())


def test_few_are_called_at_once_and_a_few_more_in_each_iteration() -> None:
    async def play(on: Bench) -> None:
        on.turns.add(on.calls(range(100)))
        assert len(on.called) == TASKS_PER_TURN
        seen = [TASKS_PER_TURN]
        for _ in range(100):
            await asyncio.sleep(0)
            seen.append(len(on.called))
        assert max(after - before for before, after in pairwise(seen)) <= TASKS_PER_TURN
        assert on.called == list(range(100))
        await turns(20)
        assert (len(on.turns), len(on.budget)) == (0, 0)

    played(play)


def test_those_that_come_later_wait_behind_those_before() -> None:
    async def play(on: Bench) -> None:
        on.turns.add(on.calls(range(20)))
        on.turns.add(on.calls(range(20, 30)))
        assert len(on.called) == TASKS_PER_TURN
        await turns(20)
        assert on.called == list(range(30))
        # When nothing waits, the first go on at once again.
        on.turns.add(on.calls(range(30, 31)))
        assert on.called == list(range(31))

    played(play)


def test_a_call_that_brings_others_does_not_go_before_those_that_wait() -> None:
    async def play(on: Bench) -> None:
        first: list[Callable[[], None]] = [lambda: on.turns.add(on.calls(range(100, 110)))]
        on.turns.add(first + on.calls(range(20)))
        await turns(20)
        assert on.called == [*range(20), *range(100, 110)]

    played(play)


def test_at_the_end_all_are_called_at_once() -> None:
    async def play(on: Bench) -> None:
        on.turns.add(on.calls(range(100)))
        on.turns.finish()
        assert on.called == list(range(100))
        await turns(20)
        assert len(on.budget) == 0

    played(play)
