"""A turn that has worked for long enough leaves the rest to later ones: in order, a few in each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from proxy.core.loop_budget import DEFERRED_PER_ITERATION, ITERATION_SECONDS, OTHERS_A_ROUND, LoopBudget
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import virtual


class Bench:
    """Turns of a loop, counted, on a clock set by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = 100.0
        self.loop_budget = LoopBudget(self.loop, lambda: self.now)
        self.number = 0
        self.called: list[tuple[int, int]] = []
        self.loop.call_soon(self._count)

    def note(self, number: int) -> None:
        self.called.append((self.number, number))

    @property
    def order(self) -> list[int]:
        return [number for _, number in self.called]

    def _count(self) -> None:
        self.number += 1
        self.loop.call_soon(self._count)


@asynccontextmanager
async def run() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    assert len(bench.loop_budget) == 0


# --- enough ---------------------------------------------------------------------------------------


@virtual
async def test_the_next_turn_begins_anew() -> None:
    async with run() as bench:
        bench.loop_budget.spent()
        bench.now += 2 * ITERATION_SECONDS
        assert bench.loop_budget.spent()
        await turns(1)
        assert not bench.loop_budget.spent()
        bench.now += 2 * ITERATION_SECONDS
        assert bench.loop_budget.spent()


@virtual
async def test_time_in_which_nobody_worked_is_no_work() -> None:
    async with run() as bench:
        bench.loop_budget.spent()
        await turns(3)
        bench.now += 1000
        assert not bench.loop_budget.spent()


# --- later ----------------------------------------------------------------------------------------


@virtual
async def test_what_is_put_off_has_turns_by_network() -> None:
    async with run() as bench:
        for number in range(5 * DEFERRED_PER_ITERATION):
            bench.loop_budget.defer(partial(bench.note, number), "crowd")
        bench.loop_budget.defer(partial(bench.note, 99), "neighbour")
        await turns(20)
        assert bench.order == [0, 99, *range(1, 5 * DEFERRED_PER_ITERATION)]


@pytest.mark.threat("topic-list-burst")
@virtual
async def test_those_that_have_an_answer_wait_for_none_that_ask_and_for_no_large_group() -> None:
    async with run() as bench:
        for _ in range(5 * DEFERRED_PER_ITERATION):
            bench.loop_budget.defer(partial(bench.note, 1))
            bench.loop_budget.defer_settling("large", partial(bench.note, 2))
        bench.loop_budget.defer_settling("small", partial(bench.note, 3))
        await turns(30)
        assert bench.order[:6] == [1, 2, 1, 3, 1, 2]
        assert Counter(bench.order) == {1: 5 * DEFERRED_PER_ITERATION, 2: 5 * DEFERRED_PER_ITERATION, 3: 1}
        assert max(Counter(turn for turn, _ in bench.called).values()) == DEFERRED_PER_ITERATION


@pytest.mark.threat("topic-list-burst")
@virtual
async def test_who_waits_for_what_is_put_off_waits_for_all_networks_and_for_nothing_later() -> None:
    async with run() as bench:

        async def wait(number: int) -> None:
            await bench.loop_budget.deferred_done()
            bench.note(number)

        for number in range(3 * DEFERRED_PER_ITERATION):
            bench.loop_budget.defer(partial(bench.note, number), "crowd")
        waits = [bench.loop.create_task(wait(100)), bench.loop.create_task(wait(101))]
        left = bench.loop.create_task(wait(102))
        await turns(1)
        left.cancel()
        for _ in range(8 * DEFERRED_PER_ITERATION):
            # In turns with those of the crowd.
            bench.loop_budget.defer(partial(bench.note, 50), "others")
        await turns(40)
        assert all(wait.done() for wait in waits)
        done = bench.order.index(100)
        assert {*range(3 * DEFERRED_PER_ITERATION)} < {*bench.order[:done]}
        assert bench.order[done + 1] == 101
        assert 50 in bench.order[done:]
        await bench.loop_budget.deferred_done()
        assert 102 not in bench.order


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.threat("lookups-of-many-connections")
@virtual
async def test_answers_do_not_wait_behind_a_crowd_of_clients_or_of_other_work() -> None:
    async with run() as bench:

        def work(number: int) -> None:
            bench.note(number)
            bench.loop_budget.charge(ITERATION_SECONDS / 4)

        for number in range(1, 101):
            bench.loop_budget.defer_client("crowd", partial(work, number))
            bench.loop_budget.defer_cheap(partial(work, number))
        bench.loop_budget.defer_answers(partial(work, 0))
        await turns(1000)
        assert bench.order.index(0) <= OTHERS_A_ROUND + 1
        assert len(bench.order) == 201
        assert max(Counter(turn for turn, _ in bench.called).values()) == 5


@pytest.mark.parametrize(("clients", "others", "a_round"), [(10, 2000, OTHERS_A_ROUND), (1000, 50, 1), (100, 350, 4)])
@virtual
async def test_other_work_has_turns_beside_clients_by_number_and_never_all(
    clients: int, others: int, a_round: int
) -> None:
    async with run() as bench:

        def ask() -> None:
            # A connection that always has more to say.
            bench.note(1)
            bench.loop_budget.charge(ITERATION_SECONDS / 100)
            if len(bench.called) < 4000:
                bench.loop_budget.defer_client("crowd", ask)

        def relay() -> None:
            bench.note(0)
            bench.loop_budget.charge(ITERATION_SECONDS / 100)
            if len(bench.called) < 4000:
                bench.loop_budget.defer_cheap(relay)

        for _ in range(clients):
            bench.loop_budget.defer_client("crowd", ask)
        for _ in range(others):
            bench.loop_budget.defer_cheap(relay)
        while len(bench.called) < 4000:
            await turns(1)
        served = Counter(bench.order[:4000])
        assert served[0] == pytest.approx(a_round * served[1], rel=0.1)
        await turns(100)


@virtual
async def test_one_that_raises_against_the_rule_keeps_nobody_from_being_called() -> None:
    lost: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(str(context["exception"])))
    async with run() as bench:

        def crash() -> None:
            raise RuntimeError("this call's own")

        for function in (partial(bench.note, 1), crash, partial(bench.note, 2)):
            bench.loop_budget.defer(function)
        await turns()
        assert (bench.order, lost) == ([1, 2], ["this call's own"])
