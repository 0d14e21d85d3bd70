"""Questions wait in front of a broker in turns by network and connection; a broker that nobody asks is forgotten."""

import asyncio

import pytest

from proxy.brokers.target import BrokerAddress
from proxy.requests import broker_turns
from proxy.requests.broker_turns import BrokerTurns
from proxy.requests.counters import RequestCounters
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual

BROKER, OTHER = BrokerAddress("one", 6650), BrokerAddress("other", 6650)


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 2)


class Turn:
    """A question's turn, which has come or is waited for."""

    def __init__(self, at: BrokerTurns, broker: BrokerAddress) -> None:
        self._at = at
        self._broker = broker
        self.came = asyncio.get_running_loop().create_future()

    def turn_came(self) -> None:
        self.came.set_result(None)

    def release(self) -> None:
        self._at.release(self._broker)


async def begun(at: BrokerTurns, asker: str, broker: BrokerAddress = BROKER, network: str = "network") -> Turn:
    turn, whose = Turn(at, broker), (network, ord(asker[0]))
    if not at.try_begin(broker):
        at.wait(broker, whose, turn)
        try:
            await asyncio.shield(turn.came)
        except asyncio.CancelledError:
            at.release(broker) if turn.came.done() else at.give_up(broker, whose, turn)
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
