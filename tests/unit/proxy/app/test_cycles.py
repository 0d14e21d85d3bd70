"""Full collections: what was looked at once is not walked again, unless so many have left that it is worth a look."""

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.app.cycles import (
    COLLECT_AT_LAST_SECONDS,
    COLLECT_SECONDS,
    FEW_CONNECTIONS,
    FEW_LISTS,
    MANY_CAME,
    TOO_MANY_LEFT,
    CycleCollection,
)
from proxy.core.counters import DISCONNECTS, Counters


class Collector:
    """Counts what the garbage collector would walk: connections that are not frozen."""

    def __init__(self) -> None:
        self.fresh, self.frozen = 0, 0
        self.walked: list[int] = []

    def came(self, count: int) -> None:
        self.fresh += count

    def left(self, count: int) -> None:
        self.frozen -= count

    def collect(self, everything: bool) -> None:
        self.walked.append(self.fresh + self.frozen * everything)
        self.frozen, self.fresh = self.frozen + self.fresh, 0


class Stage:
    """A proxy as far as collections look at it, with a clock that moves by whole seconds."""

    def __init__(self) -> None:
        self.now = 0
        self.collector = Collector()
        self.sessions: OrderedDict[int, None] = OrderedDict()
        self.lists: set[int] = set()
        self.sockets = SimpleNamespace(quiet=True)
        counters = Counters()
        self.disconnects = counters[DISCONNECTS]
        requests: Any = SimpleNamespace(topic_lists=SimpleNamespace(groups=SimpleNamespace(registry=self.lists)))
        sockets: Any = self.sockets
        self.cycles = CycleCollection(sockets, self.sessions, counters, requests, 0.0, self.collector.collect)

    def come(self, count: int) -> None:
        begin = next(reversed(self.sessions), -1) + 1
        self.sessions.update(dict.fromkeys(range(begin, begin + count)))
        self.collector.came(count)

    def leave(self, count: int) -> None:
        for _ in range(count):
            self.sessions.popitem(last=False)
        self.disconnects["left"] += count
        self.collector.left(count)

    def wait(self, seconds: int) -> list[int]:
        """Let time pass, and give how many connections each collection meanwhile has walked."""
        seen = len(self.collector.walked)
        for _ in range(seconds):
            self.now += 1
            self.cycles.tick(float(self.now))
        return self.collector.walked[seen:]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.threat("garbage-of-idle-connections")
def test_ten_thousand_idle_connections_are_never_walked_at_once(stage: Stage) -> None:
    walked = []
    for _ in range(20):
        stage.come(500)
        walked += stage.wait(1)
    walked += stage.wait(2 * COLLECT_AT_LAST_SECONDS)
    assert len(stage.sessions) == 10_000
    assert sum(walked) == 10_000
    assert max(walked) == 500


@pytest.mark.threat("garbage-of-idle-connections")
def test_a_crowd_that_leaves_is_not_walked_while_it_leaves(stage: Stage) -> None:
    stage.come(10_000)
    stage.wait(COLLECT_AT_LAST_SECONDS)
    walked = []
    for _ in range(20):
        stage.leave(500)
        walked += stage.wait(1)
    assert max(walked, default=0) == 0


def test_new_connections_are_looked_at_within_a_minute_and_many_of_them_at_once(stage: Stage) -> None:
    stage.come(MANY_CAME - 1)
    assert stage.wait(COLLECT_SECONDS - 1) == []
    assert stage.wait(1) == [MANY_CAME - 1]
    stage.come(MANY_CAME)
    assert stage.wait(1) == [MANY_CAME]


def test_with_many_connections_there_is_a_look_at_all_only_when_it_may_free_far_more(stage: Stage) -> None:
    stage.come(TOO_MANY_LEFT + 2 * FEW_CONNECTIONS)
    stage.wait(COLLECT_AT_LAST_SECONDS)
    stage.leave(TOO_MANY_LEFT - 1)
    assert max(stage.wait(2 * COLLECT_AT_LAST_SECONDS)) == 0
    stage.leave(1)
    assert max(stage.wait(COLLECT_AT_LAST_SECONDS)) == 2 * FEW_CONNECTIONS


def test_a_storm_of_lists_and_busy_moments_are_waited_for_ten_minutes_at_most(stage: Stage) -> None:
    stage.lists.update(range(FEW_LISTS + 1))
    stage.come(MANY_CAME)
    assert stage.wait(COLLECT_AT_LAST_SECONDS - 1) == []
    stage.lists.clear()
    stage.sockets.quiet = False
    assert stage.wait(1) == [MANY_CAME]
    stage.come(MANY_CAME)
    assert stage.wait(COLLECT_SECONDS) == []
    stage.sockets.quiet = True
    assert stage.wait(1) == [MANY_CAME]
