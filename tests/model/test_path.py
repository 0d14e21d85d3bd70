"""The real service keeps the books of the model, wherever its clients and brokers lead it."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from limiter.ledger import Ledger
from proxy.requests.topic_lists.groups import ListGroups
from proxy.requests.topic_lists.service import TopicListService
from tests.model.explorer import explore
from tests.model.path import EagerRules, first_difference
from tests.model.real import waits
from tests.model.rules import Setup
from tests.model.test_model import SEPARATE, SHARED

TRACES = 120


def difference(setup: Setup, count: int = TRACES) -> str:
    rules = EagerRules(setup)
    found, dice = explore(rules), random.Random(1)
    states = list(found.reached)
    waiting = [state for state in states if waits(state)]
    for state in (*dice.sample(waiting, count), *dice.sample(states, count // 2)):
        if told := first_difference(rules, found.trace(state)):
            return told
    return ""


@pytest.mark.parametrize("setup", [SHARED, SEPARATE], ids=["shared", "separate"])
def test_the_service_keeps_the_books_of_the_model(setup: Setup) -> None:
    assert difference(setup) == ""


async def _no_turn(service: TopicListService, group: Any) -> None:
    group.predecessor = None
    await _EXCHANGE(service, group)


_EXCHANGE = TopicListService._exchange
BROKEN: dict[str, tuple[type[Any], str, Callable[..., Any], Setup]] = {
    "a question does not wait for the one before": (TopicListService, "_exchange", _no_turn, SHARED),
    "all growth passes the limit": (Ledger, "may_grow", lambda *_: True, SEPARATE),
    "a group takes joiners for ever": (ListGroups, "asked", lambda *_: None, SHARED),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_service_that_breaks_a_rule_differs_from_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, other, setup = BROKEN[name]
    monkeypatch.setattr(owner, attribute, other)
    assert difference(setup)
