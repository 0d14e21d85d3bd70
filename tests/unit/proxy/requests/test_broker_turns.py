"""Questions wait in front of a broker in turns by network and connection; a broker that nobody asks is forgotten."""

import asyncio
import random

import pytest

from proxy.brokers.target import BrokerAddress
from proxy.requests import broker_turns
from proxy.requests.broker_turns import Asker, BrokerTurns, Turn
from proxy.requests.counters import RequestCounters
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual

BROKER, OTHER = BrokerAddress("one", 6650), BrokerAddress("other", 6650)


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 2)


class Question:
    """A question's turn, which has come or is waited for."""

    def __init__(self, at: BrokerTurns, asker: Asker) -> None:
        self._at = at
        self._asker = asker
        self.turn: Turn | None = None
        self.came = asyncio.get_running_loop().create_future()

    def turn_came(self, turn: Turn) -> None:
        self.turn = turn
        self.came.set_result(None)

    def release(self) -> None:
        assert self.turn is not None
        self._at.release(self.turn, self._asker)


async def begun(at: BrokerTurns, asker: str, broker: BrokerAddress = BROKER, network: str = "network") -> Question:
    whose = network, ord(asker[0])
    turn = Question(at, whose)
    turn.turn = at.try_begin(broker, whose)
    if turn.turn is None:
        at.wait(broker, whose, turn)
        try:
            await asyncio.shield(turn.came)
        except asyncio.CancelledError:
            turn.release() if turn.came.done() else at.give_up(broker, whose, turn)
            raise
    return turn


async def test_questions_beyond_those_at_a_broker_wait() -> None:
    at = BrokerTurns(RequestCounters())
    first, second = await begun(at, "a"), await begun(at, "a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(begun(at, "a"))
        await turns(3)
        assert (at.asked, at._counters.lookups_waiting, waiting.done()) == (2, 1, False)
        first.release()
        third = await waiting
    assert (at.asked, at._counters.lookups_waiting) == (2, 0)
    second.release()
    third.release()
    assert at.asked == 0


async def test_a_busy_broker_keeps_no_question_from_another() -> None:
    at = BrokerTurns(RequestCounters())
    held = [await begun(at, "a"), await begun(at, "a"), await begun(at, "a", OTHER)]
    assert at.asked == 3
    for turn in held:
        turn.release()


async def test_a_connection_with_one_question_waits_for_one_of_a_connection_with_many() -> None:
    at = BrokerTurns(RequestCounters())
    served: list[str] = []
    held = [await begun(at, "many"), await begun(at, "many")]

    async def ask(asker: str) -> None:
        turn = await begun(at, asker)
        served.append(asker)
        await turns(2)
        turn.release()

    async with asyncio.TaskGroup() as group:
        for asker in (*["many"] * 20, "few"):
            group.create_task(ask(asker))
            await turns(1)
        await turns(3)
        for turn in held:
            turn.release()
    assert served.index("few") <= 2


@pytest.mark.threat("lookups-of-many-connections")
async def test_a_network_with_many_connections_has_one_turn_for_each_of_another() -> None:
    at = BrokerTurns(RequestCounters())
    served: list[str] = []
    held = [await begun(at, "z"), await begun(at, "z")]

    async def ask(asker: str, network: str) -> None:
        turn = await begun(at, asker, network=network)
        served.append(asker)
        await turns(2)
        turn.release()

    async with asyncio.TaskGroup() as group:
        for asker in "abcdefghij" * 3:
            group.create_task(ask(asker, "crowd"))
        await turns(1)
        for asker in "xy":
            group.create_task(ask(asker, "other"))
        await turns(3)
        for turn in held:
            turn.release()
    assert "".join(served[:5]) == "axbyc"
    assert "".join(served).replace("x", "").replace("y", "") == "abcdefghij" * 3


async def test_a_turn_that_comes_as_its_asker_leaves_goes_to_the_next() -> None:
    at = BrokerTurns(RequestCounters())
    held = [await begun(at, "a"), await begun(at, "a")]
    async with asyncio.TaskGroup() as group:
        leaving, following = (group.create_task(begun(at, asker)) for asker in "bc")
        await turns(2)
        held[0].release()
        leaving.cancel()
        (await following).release()
    assert at.asked == 1
    held[1].release()
    assert (at._at_brokers, at._counters.lookups_waiting) == ({}, 0)


async def test_a_broker_that_nobody_asks_is_forgotten() -> None:
    at = BrokerTurns(RequestCounters())
    held = [await begun(at, "a"), await begun(at, "a")]
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(begun(at, "b"))
        await turns(3)
        leaving.cancel()
    for turn in held:
        assert at._at_brokers
        turn.release()
    assert (at._at_brokers, at._counters.lookups_waiting) == ({}, 0)


def test_a_wait_for_a_turn_ends() -> None:
    async def play() -> None:
        at = BrokerTurns(RequestCounters())
        held = [await begun(at, "a"), await begun(at, "a")]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await begun(at, "b")
        assert at._counters.lookups_waiting == 0
        for turn in held:
            turn.release()

    run_virtual(play())


# --- the reserve ----------------------------------------------------------------------------------


class Crowd:
    """Questions at a broker that has 40 places and a reserve of 10, and leaves all unanswered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 40)
        self.at = BrokerTurns(RequestCounters())
        self.waiting: list[Question] = []

    def ask(self, network: str, connection: int) -> Question:
        question = Question(self.at, (network, connection))
        question.turn = self.at.try_begin(BROKER, (network, connection))
        if question.turn is None:
            self.at.wait(BROKER, (network, connection), question)
            self.waiting.append(question)
        return question

    def asked_by(self, network: str, connections: range) -> int:
        """Let connections ask once each; return how many of them had a turn at once."""
        return sum(self.ask(network, connection).turn is not None for connection in connections)


@pytest.fixture
async def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    return Crowd(monkeypatch)


async def test_who_has_few_questions_outstanding_is_asked_for_at_once_behind_those_of_others(crowd: Crowd) -> None:
    for _ in range(100):
        crowd.ask("flood", 1)
    assert (crowd.at.asked, crowd.at._counters.lookups_waiting) == (40, 60)
    first, second, third = (crowd.ask("neighbour", 2) for _ in range(3))
    assert first.turn == second.turn == Turn(BROKER, reserved=True)
    assert third.turn is None
    # Also behind the address of the flood.
    assert crowd.ask("flood", 3).turn is not None
    first.release()
    assert first.turn is not None
    # With the third, which waits, two are outstanding.
    assert crowd.ask("neighbour", 2).turn is None


@pytest.mark.threat("pipelined-lookups")
async def test_a_crowd_of_one_network_leaves_half_of_the_reserve_to_others(crowd: Crowd) -> None:
    for _ in range(100):
        crowd.ask("flood", 1)
    assert crowd.asked_by("flood", range(2, 100)) == 5
    assert crowd.asked_by("neighbour", range(100, 102)) == 2
    # No network takes all that is left.
    assert crowd.asked_by("another", range(200, 300)) == 2
    assert crowd.asked_by("newcomer", range(300, 301)) == 1
    assert crowd.at.asked == 50


async def test_the_reserve_takes_no_turn_from_those_that_wait(crowd: Crowd) -> None:
    questions = [crowd.ask("flood", 1) for _ in range(100)]
    reserved = [crowd.ask(f"network {number}", number) for number in range(2, 12)]
    assert (crowd.at.asked, all(each.turn is not None for each in reserved)) == (50, True)
    questions[0].release()
    assert questions[40].turn == Turn(BROKER, reserved=False)
    assert crowd.at.asked == 50
    # A place of the reserve is for the next with few questions, and not for the line.
    reserved[0].release()
    assert crowd.at.asked == 49
    assert crowd.ask("network 20", 20).turn == Turn(BROKER, reserved=True)


@pytest.mark.parametrize("seed", range(20))
async def test_however_questions_come_and_go_the_books_are_right(seed: int, crowd: Crowd) -> None:
    draw = random.Random(seed)
    live: list[Question] = []
    for _ in range(1500):
        if draw.random() < 0.55 or not live:
            live.append(crowd.ask(f"network {draw.randrange(6)}", draw.randrange(30)))
        else:
            question = live.pop(draw.randrange(len(live)))
            if question.turn is not None:
                question.release()
            else:
                crowd.at.give_up(BROKER, question._asker, question)
        turns_held = [each.turn for each in live if each.turn is not None]
        ordinary = sum(not turn.reserved for turn in turns_held)
        assert crowd.at.asked == len(turns_held)
        assert ordinary <= 40
        assert len(turns_held) - ordinary <= 10
        assert crowd.at._counters.lookups_waiting == len(live) - len(turns_held)
        # Nobody waits while a place that is given in turns is free.
        assert ordinary == 40 or len(live) == len(turns_held)
    for question in draw.sample(live, len(live)):
        if question.turn is not None:
            question.release()
        else:
            crowd.at.give_up(BROKER, question._asker, question)
    assert (crowd.at._at_brokers, crowd.at._counters.lookups_waiting) == ({}, 0)
