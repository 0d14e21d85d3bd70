"""A permit of several nodes: every order in which a few clients ask, grow, leave, cancel and release, at small sizes.

The rules stand in `permits.py`. A semaphore and its shares do the same after each move from each state.
"""

import asyncio
import math
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from limiter import AsyncSemaphore, Permit
from tests.model.permits import Client, Edges, Phase, Rules, State, circles, explore
from tests.support.loops.clock import ManualClock

ALL = 2
A, B, BOTH = (0, ALL), (1, ALL), (0, 1, ALL)
SCENES = {
    "two brokers below one limit": Rules((1, 2, 2), (Client(A), Client(A), Client(B), Client(B, 2), Client(A, 2))),
    "grants of two a step": Rules((2, 2, 3), (Client(A), Client(A), Client(B, 3), Client(B)), a_step=2),
    "growth": Rules((2, 3, 3), (Client(A, 1, (3,)), Client(A, 1, (2, 3)), Client(B, 1, (3, 4)), Client(B))),
    "growth at nodes that overlap": Rules(
        (2, 2, 4), (*[Client(BOTH, 1, (2, 3))] * 2, Client(A, 1, (3,)), Client(B, 2))
    ),
    "nodes that overlap": Rules((1, 1, 2), (Client(BOTH), Client(A), Client(A), Client(B), Client(B))),
    "a reader that leaves its share": Rules(
        (1, 1, 3),
        (Client(BOTH, 1, (2,), leaves=1), Client(B, leaves=1), Client(B, 1, (3,)), Client(A)),
    ),
    "a part for keys that hold nothing": Rules(
        (2, 2, 3),
        (*[Client(A, key="many")] * 2, Client(A, key="few"), Client(B, 2, key="many"), Client(B, key="few")),
        kept=(1, 0, 1),
    ),
}


def checked(rules: Rules) -> Edges:
    """Explore all, and check each state: who goes who may, what is held, and that releases alone end everything."""

    def check(state: State) -> None:
        assert state.more or rules.next(state) is None, "somebody could go, and nobody will look"
        for node, limit in enumerate(rules.limits):
            above = [
                dict(zip(rules.clients[who].nodes, state.slots[who].booked, strict=True))[node] - before
                for at, who, before in state.over
                if at == node
            ]
            assert rules.held(state, node) - sum(above) <= limit, "above its limit, and not by one overshoot"
            assert len(above) <= 1
        drained(rules, state)

    return explore(rules, check)


def drained(rules: Rules, state: State) -> None:
    """Let all who hold something give it back, and nobody ask or give up."""
    while state.slots != rules.start().slots:
        moves = [after for what, _, after in rules.moves(state) if what in ("release", "go on")]
        assert moves, f"all wait for each other: {state}"
        state = moves[0]
    assert (state.line, state.growers, state.over) == ((), (), frozenset())


def starved(rules: Rules, edges: Edges) -> set[int]:
    """Return who may wait for ever while each of the others who holds something gives it back now and then.

    Where a part is kept, a key that holds something gives way to those that hold nothing for as long as they come.
    """
    found = set()
    for who in range(len(rules.clients)):
        key = rules.clients[who].key
        waits = {
            state
            for state in edges
            if state.slots[who].phase in (Phase.WAITS, Phase.GROWS)
            and not (rules.kept and any(rules.held(state, node, key) for node in range(len(rules.limits))))
        }
        for circle in circles(edges, waits):
            rests = list[bool]()
            for other in range(len(rules.clients)):
                phases = {state.slots[other].phase for state in circle}
                # One whose growth waits all the time cannot give anything back.
                rests.append(other == who or bool(phases & {Phase.IDLE, Phase.WAITS}) or phases == {Phase.GROWS})
            if all(rests) and any(not state.more for state in circle):
                found.add(who)
    return found


@pytest.mark.parametrize("name", SCENES)
def test_nobody_waits_for_ever_and_nothing_is_left_whatever_happens_in_which_order(name: str) -> None:
    rules = SCENES[name]
    edges = checked(rules)
    assert not starved(rules, edges)


def test_who_is_held_up_at_one_node_would_wait_for_ever_if_others_took_of_those_before() -> None:
    rules = replace(SCENES["nodes that overlap"], holds_what_it_passed=False)
    assert starved(rules, checked(rules)) == {0}


def test_a_step_that_is_forgotten_leaves_somebody_who_could_go() -> None:
    with pytest.raises(AssertionError, match="nobody will look"):
        checked(replace(SCENES["two brokers below one limit"], goes_on=False))


# --- what production has ----------------------------------------------------------------------------

SERIES = {
    name: replace(rules, in_series=True)
    for name, rules in SCENES.items()
    if not rules.kept and not any(client.grows for client in rules.clients)
} | {
    "lists of two brokers": Rules(
        (2, 2, 4), (*[Client(A, 1, (3,), leaves=0)] * 2, Client(B, 2, (4,), leaves=1), Client(B, leaves=1)),
        in_series=True,
    ),
    "a share of a share": Rules((1, 2, 2), (*[Client(BOTH, leaves=0)] * 2, Client(B), Client(B, 2)), in_series=True),
}  # fmt: skip
PLAYED = SERIES | {
    "acquires": Rules((3,), (Client((0,)), Client((0,), 2), Client((0,), 3), Client((0,), 5))),
    "growth": Rules(
        (3,), (Client((0,), 1, (2, 4)), Client((0,), 1, (3,)), Client((0,), 2, (3,)), Client((0,)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SERIES)
def test_nobody_waits_for_ever_where_nodes_are_taken_one_after_the_other(name: str) -> None:
    rules = SERIES[name]
    assert not starved(rules, checked(rules))


async def settled() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


class Played:
    """Clients of a semaphore and of its shares, who do what those of the rules do."""

    def __init__(self, rules: Rules, loop: asyncio.AbstractEventLoop) -> None:
        self._clients = rules.clients
        self._loop = loop
        *parts, limit = rules.limits
        whole = AsyncSemaphore("all", limit, max_queue=0, timeout_seconds=math.inf, clock=ManualClock())
        self._nodes = [*(whole.share("part", part / limit) for part in parts), whole]
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._permits: dict[int, list[Permit]] = {}
        self._grew = [0] * len(self._clients)

    async def _acquire(self, who: int) -> None:
        client = self._clients[who]
        with ExitStack() as held:
            permits = [held.enter_context(await self._nodes[node].acquire(client.size)) for node in client.nodes]
            held.pop_all()
        self._permits[who] = permits

    async def _grow(self, who: int) -> None:
        await self._permits[who][-1].update(self._clients[who].grows[self._grew[who]])
        self._grew[who] += 1

    def move(self, what: str, who: int) -> None:
        if what == "ask":
            self._tasks[who] = self._loop.create_task(self._acquire(who))
        elif what == "grow":
            self._tasks[who] = self._loop.create_task(self._grow(who))
        elif what == "cancel":
            self._tasks[who].cancel()
        elif what == "leave":
            self._permits[who][self._clients[who].nodes.index(self._clients[who].leaves)].release()
        else:
            for permit in reversed(self._permits.pop(who)):
                permit.release()
            self._grew[who] = 0
        self._loop.run_until_complete(settled())
        self._tasks = {client: task for client, task in self._tasks.items() if not task.done()}

    def seen(self) -> tuple[list[Phase], dict[int, list[int]], list[int]]:
        """Return what each client does, what each holder has at its nodes, and what is held at each node."""
        clients = range(len(self._clients))
        phases = [Phase(2 * (who in self._permits) + (who in self._tasks)) for who in clients]
        sizes = {who: [permit.size for permit in permits] for who, permits in sorted(self._permits.items())}
        return phases, sizes, [node.held for node in self._nodes]

    def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._loop.run_until_complete(settled())


@pytest.mark.parametrize("name", PLAYED)
def test_the_limiter_does_what_the_rules_say(name: str) -> None:
    rules = replace(PLAYED[name], a_step=9)
    ahead: list[tuple[State, list[tuple[str, int]]]] = [(rules.start(), [])]
    known = set[State]()
    loop = asyncio.new_event_loop()
    while ahead:
        state, way = ahead.pop(0)
        if state in known:
            continue
        known.add(state)
        for what, who, after in rules.moves(state):
            played = Played(rules, loop)
            for move in (*way, (what, who)):
                played.move(*move)
            nodes = range(len(rules.limits))
            holders = {
                who: [*slot.booked] for who, slot in enumerate(after.slots) if slot.phase in (Phase.HOLDS, Phase.GROWS)
            }
            expected = [slot.phase for slot in after.slots], holders, [rules.held(after, node) for node in nodes]
            assert played.seen() == expected, (way, what, who)
            played.end()
            ahead.append((after, [*way, (what, who)]))
    loop.close()
    assert len(known) > 30
