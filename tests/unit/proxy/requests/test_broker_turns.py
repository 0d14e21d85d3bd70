"""Questions wait in front of a broker in turns by network and connection; a broker that nobody asks is forgotten."""

import random

import pytest

from proxy.brokers.target import BrokerAddress
from proxy.core.counters import Counters
from proxy.requests import broker_turns
from proxy.requests.broker_turns import BrokerTurns, Turn
from tests.support.proxies.counted import counted

BROKER, OTHER = BrokerAddress("one", 6650), BrokerAddress("other", 6650)


class Question:
    """A question that has its turn, or waits for it."""

    def __init__(self, crowd: "Crowd", network: str, connection: int, broker: BrokerAddress = BROKER) -> None:
        self.crowd, self.broker = crowd, broker
        self.asker = network, connection
        self.turn = crowd.at.try_begin(broker, self.asker)
        self.entry = None if self.turn is not None else crowd.at.wait(broker, self.asker, self)

    def turn_came(self, turn: Turn) -> None:
        self.turn = turn
        self.crowd.served.append(self)

    def end(self) -> None:
        """Have its answer, or give up."""
        if self.turn is not None:
            following = self.crowd.at.release(self.turn, self.asker)
            if following is not None:
                following.turn_came(self.turn)
        elif self.entry is not None:
            self.crowd.at.give_up(self.broker, self.asker, self.entry)


class Crowd:
    """Questions at a broker that has 40 places and a reserve of 10, and leaves all unanswered."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.at: BrokerTurns[Question] = BrokerTurns(self.counters)
        self.served: list[Question] = []

    def ask(self, network: str, connection: int, broker: BrokerAddress = BROKER) -> Question:
        return Question(self, network, connection, broker)

    def asked_by(self, network: str, connections: range) -> int:
        """Let connections ask once each; return how many of them had a turn at once."""
        return sum(self.ask(network, connection).turn is not None for connection in connections)


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 40)
    return Crowd()


@pytest.mark.threat("lookups-of-many-connections")
def test_a_network_with_many_connections_has_one_turn_for_each_of_another(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few have no reserve.
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 2)
    held = [crowd.ask("crowd", 99) for _ in range(2)]
    for connection in [*range(10)] * 3:
        crowd.ask("crowd", connection)
    for connection in (101, 102):
        crowd.ask("other", connection)
    assert crowd.ask("other", 101, OTHER).turn is not None, "a busy broker keeps no question from another"
    for question in held:
        question.end()
    for question in crowd.served:
        question.end()
    connections = [question.asker[1] for question in crowd.served]
    assert connections == [0, 101, 1, 102, *range(2, 10), *range(10), *range(10)]


def test_who_has_few_questions_outstanding_is_asked_for_at_once_behind_those_of_others(crowd: Crowd) -> None:
    for _ in range(100):
        crowd.ask("flood", 1)
    assert (crowd.at.asked, counted(crowd.counters, "lookups_waiting")) == (40, 60)
    first, second, third = (crowd.ask("neighbour", 2) for _ in range(3))
    assert first.turn == second.turn == Turn(BROKER, reserved=True)
    assert third.turn is None
    # Also behind the address of the flood.
    assert crowd.ask("flood", 3).turn is not None
    first.end()
    # With the third, which waits, two are outstanding.
    assert crowd.ask("neighbour", 2).turn is None


@pytest.mark.threat("pipelined-lookups")
def test_a_crowd_of_one_network_leaves_half_of_the_reserve_to_others(crowd: Crowd) -> None:
    for _ in range(100):
        crowd.ask("flood", 1)
    assert crowd.asked_by("flood", range(2, 100)) == 5
    assert crowd.asked_by("neighbour", range(100, 102)) == 2
    # No network takes all that is left.
    assert crowd.asked_by("another", range(200, 300)) == 2
    assert crowd.asked_by("newcomer", range(300, 301)) == 1
    assert crowd.at.asked == 50


@pytest.mark.parametrize("seed", range(20))
def test_however_questions_come_and_go_the_books_are_right(seed: int, crowd: Crowd) -> None:
    draw = random.Random(seed)
    live: list[Question] = []
    for _ in range(1500):
        if draw.random() < 0.55 or not live:
            live.append(crowd.ask(f"network {draw.randrange(6)}", draw.randrange(30)))
        else:
            live.pop(draw.randrange(len(live))).end()
        turns = [each.turn for each in live if each.turn is not None]
        ordinary = sum(not turn.reserved for turn in turns)
        assert crowd.at.asked == len(turns)
        assert ordinary <= 40
        assert len(turns) - ordinary <= 10
        assert counted(crowd.counters, "lookups_waiting") == len(live) - len(turns)
        # Nobody waits while a place that is given in turns is free.
        assert ordinary == 40 or len(live) == len(turns)
    for question in draw.sample(live, len(live)):
        question.end()
    assert (len(crowd.at), counted(crowd.counters, "lookups_waiting")) == (0, 0)
