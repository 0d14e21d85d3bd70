"""Tasks that all may go on are let go a few in an iteration, in their order, and none is forgotten."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TASKS_PER_TURN, LeaveTurns, PacedWaiters, TaskTurns
from proxy.core.tasks import TaskScope
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import most_in_an_iteration, virtual


class Bench:
    """Turns of tasks, and what was called."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, loop.time)
        self.crashes: list[BaseException] = []
        self.turns = TaskTurns(self.budget, self.crashes.append)
        self.called: list[int] = []

    def calls(self, numbers: range) -> list[Callable[[], None]]:
        return [partial(self.called.append, number) for number in numbers]


# --- tasks that wait for the same event -----------------------------------------------------------


@virtual
async def test_tasks_that_wait_for_one_event_go_on_a_few_in_an_iteration_and_in_their_order() -> None:
    on = Bench()
    waiters, gone_on = PacedWaiters(on.turns), list[int]()

    async def wait(number: int) -> None:
        await waiters.wait()
        gone_on.append(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait(number)) for number in range(200)]
        await turns(1)
        tasks[3].cancel()
        waiters.wake()
        # One leaves while it stands in line, and one comes too late.
        tasks[150].cancel()
        late = group.create_task(wait(200))
        assert await most_in_an_iteration(lambda: len(gone_on), 198) <= TASKS_PER_TURN
        assert gone_on == [number for number in range(200) if number not in (3, 150)]
        assert len(waiters) == 1
        waiters.wake()
        await late
    assert (len(waiters), on.crashes) == (0, [])


# --- clients that leave ---------------------------------------------------------------------------

# What an iteration may end.
TASKS = 24


class Leaving:
    """Clients whose requests are tasks, and the tasks that have ended, by their names."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, loop.time)
        self.crashes: list[BaseException] = []
        self.turns = LeaveTurns(loop, self.budget, self.crashes.append)
        self.ended: list[str] = []

    async def client(self, name: str, requests: int) -> TaskScope:
        scope = TaskScope(lambda error: None)
        for _ in range(requests):
            scope.start(forever(), partial(self.ended.append, name))
        await asyncio.sleep(0)
        return scope

    async def iterations(self, count: int) -> list[int]:
        """Let `count` iterations go by, and give how many tasks ended in each."""
        seen = [len(self.ended)]
        for _ in range(count):
            await asyncio.sleep(0)
            seen.append(len(self.ended))
        return [after - before for before, after in pairwise(seen)]


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.threat("lookups-left-behind")
@virtual
async def test_tasks_that_hold_memory_end_before_those_that_have_waited_longer() -> None:
    on = Leaving()
    lookups, lists = await on.client("lookup", 300), await on.client("list", 10)
    on.turns.cancel(lookups.close())
    on.turns.cancel(lists.close(), first=True)
    await on.iterations(40)
    assert len(on.ended) == 310
    assert on.ended[: TASKS + 10].count("list") == 10


@pytest.mark.threat("lists-left-at-once")
@virtual
async def test_a_thousand_clients_with_a_list_each_do_not_leave_on_one_stack() -> None:
    on = Leaving()
    depths, closed, scopes = [0], list[int](), [await on.client("list", 1) for _ in range(1000)]

    def leave(number: int) -> None:
        # As the end of a connection does.
        depths.append(depths[-1] + 1)
        on.turns.cancel(scopes[number].close(), first=True)
        closed.append(number)
        depths.append(depths[-1] - 1)

    for number in range(1000):
        on.turns.leave(partial(leave, number))
    await on.iterations(150)
    assert max(depths) == 1
    assert (closed, len(on.ended), len(on.turns), on.crashes) == (list(range(1000)), 1000, 0, [])


@pytest.mark.threat("lists-left-at-once")
@virtual
async def test_an_end_that_raises_keeps_nobody_from_leaving() -> None:
    on = Leaving()

    def fail() -> None:
        raise ValueError

    scope, closed = await on.client("a", 30), list[int]()
    for number in range(30):
        on.turns.leave(fail)
        on.turns.leave(partial(closed.append, number))
    on.turns.cancel(scope.close())
    await on.iterations(20)
    assert (closed, len(on.ended), len(on.turns), len(on.crashes)) == (list(range(30)), 30, 0, 30)


@virtual
async def test_a_task_that_fails_to_go_on_holds_up_no_other() -> None:
    on = Bench()

    def fail() -> None:
        raise ValueError

    on.turns.add([fail, *on.calls(range(20)), fail])
    await turns(20)
    on.turns.add(on.calls(range(20, 21)))
    assert on.called == list(range(21))
    assert len(on.crashes) == 2


@virtual
async def test_a_long_line_at_the_loop_budget_keeps_nobody_from_leaving() -> None:
    on = Leaving()

    def busy() -> None:
        on.budget.charge(1.0)
        on.budget.defer_cheap(busy)

    for _ in range(1000):
        on.budget.defer_cheap(busy)
    scope = await on.client("a", 500)
    on.turns.cancel(scope.close())
    assert sum(await on.iterations(30)) == 500


@virtual
async def test_at_a_shutdown_all_tasks_of_clients_that_left_end_at_once() -> None:
    on = Leaving()
    scope, closed = await on.client("a", 500), list[int]()
    on.turns.cancel(scope.close())
    for number in range(60):
        on.turns.leave(partial(closed.append, number))
    on.turns.finish()
    assert len(on.turns) == 0
    await on.iterations(3)
    assert (len(on.ended), len(closed)) == (500, 60)
