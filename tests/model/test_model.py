"""Every order of steps of a few requests keeps the promises, each rule is needed, the code does what the rules say."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from limiter.ledger import Ledger
from limiter.semaphore import AsyncSemaphore
from proxy.requests.topic_lists.groups import ListGroups
from tests.model.explorer import Found, explore
from tests.model.real import first_difference, waits
from tests.model.rules import Mutation, Rules, Setup, Step

# Two requests share a key, the third client never reads; three keys; and only what must happen.
SHARED = Setup()
SEPARATE = Setup(keys=(0, 1, 2), changes=0)
NOBODY_LEAVES = Setup(keys=(0, 1, 2), silent=frozenset(), changes=0, leaves=False)
CAUGHT = {
    Mutation.JOINS_AFTER_THE_QUESTION: (SHARED, "an answer is older than its request"),
    Mutation.GROWTH_WITHIN_THE_LIMIT_ONLY: (NOBODY_LEAVES, "somebody waits for ever"),
    Mutation.GROWTH_WITHOUT_A_LIMIT: (NOBODY_LEAVES, "heap is not bounded"),
    Mutation.NO_DISK: (SEPARATE, "somebody waits for ever"),
    Mutation.LEAVERS_KEEP_PERMITS: (SEPARATE, "permits are not zero at the end"),
    Mutation.LEAVERS_KEEP_THE_TURN: (SHARED, "somebody waits for ever"),
}


@pytest.mark.parametrize("setup", [SHARED, SEPARATE, NOBODY_LEAVES], ids=["shared", "separate", "nobody leaves"])
def test_no_order_of_steps_breaks_a_promise(setup: Setup) -> None:
    assert explore(Rules(setup)).wrong == set()


@pytest.mark.parametrize("mutation", CAUGHT, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_left_out_is_missed(mutation: Mutation) -> None:
    setup, wrong = CAUGHT[mutation]
    assert wrong in explore(Rules(setup, mutation)).wrong


def test_each_mutation_of_the_rules_is_tried() -> None:
    assert CAUGHT.keys() == set(Mutation)


def chosen(found: Found, count: int) -> list[list[Step]]:
    """Return traces to states in which somebody waits for memory, and some to any."""
    states = list(found.reached)
    dice = random.Random(1)
    waiting = [state for state in states if waits(state)]
    return [found.trace(state) for state in (*dice.sample(waiting, count), *dice.sample(states, count // 2))]


async def difference(setup: Setup, count: int = 250) -> str:
    rules = Rules(setup)
    for trace in chosen(explore(rules), count):
        if told := await first_difference(rules, trace):
            return told
    return ""


@pytest.mark.parametrize("setup", [SHARED, SEPARATE], ids=["shared", "separate"])
async def test_the_code_keeps_the_books_of_the_model(setup: Setup) -> None:
    assert await difference(setup) == ""


def _never_overshoots(ledger: Ledger, permit: Any, n: int) -> bool:
    return ledger.limit <= 0 or ledger.held + n - permit.size <= ledger.limit


def _serves_newcomers_only(semaphore: AsyncSemaphore) -> None:
    while (acquirer := semaphore._acquirers.head) is not None:
        size = semaphore._ledger.room_for(acquirer.size)
        if size < 0:
            return
        semaphore._unlink(acquirer)
        acquirer.set_result(semaphore._book(acquirer.size, size, acquirer.key, 0.0))


BROKEN: dict[str, tuple[type[Any], str, Callable[..., Any], Setup]] = {
    "no growth passes the limit": (Ledger, "may_grow", _never_overshoots, SEPARATE),
    "all growth passes the limit": (Ledger, "may_grow", lambda *_: True, SEPARATE),
    "growth that waits is not served": (AsyncSemaphore, "_serve", _serves_newcomers_only, SEPARATE),
    "a group takes joiners for ever": (ListGroups, "asked", lambda *_: None, SHARED),
    "an answer that begins lets nobody go": (ListGroups, "answer_begun", lambda *_: None, SHARED),
    "an empty group goes on": (ListGroups, "_emptied", lambda *_: None, SHARED),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_code_that_breaks_a_rule_differs_from_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, other, setup = BROKEN[name]
    monkeypatch.setattr(owner, attribute, other)
    assert await difference(setup)
