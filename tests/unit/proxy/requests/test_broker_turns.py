"""Questions wait in front of a broker in turns by connection, and a broker that nobody asks is forgotten."""

import asyncio

import pytest

from limiter.errors import PermitAcquireTimeout
from proxy.brokers.target import BrokerAddress
from proxy.requests import broker_turns
from proxy.requests.broker_turns import BrokerTurns, Turn
from proxy.requests.counters import RequestCounters
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual

BROKER, OTHER = BrokerAddress("one", 6650), BrokerAddress("other", 6650)


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 2)


async def begun(at: BrokerTurns, asker: str, broker: BrokerAddress = BROKER) -> Turn:
    return await at.begin(broker, asker, 10.0)


async def test_questions_beyond_those_at_a_broker_wait() -> None:
    at = BrokerTurns(asyncio.get_running_loop(), RequestCounters())
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
    at = BrokerTurns(asyncio.get_running_loop(), RequestCounters())
    held = [await begun(at, "a"), await begun(at, "a"), await begun(at, "a", OTHER)]
    assert at.asked == 3
    for turn in held:
        turn.release()


async def test_a_connection_with_one_question_waits_for_one_of_a_connection_with_many() -> None:
    at = BrokerTurns(asyncio.get_running_loop(), RequestCounters())
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


async def test_a_broker_that_nobody_asks_is_forgotten() -> None:
    at = BrokerTurns(asyncio.get_running_loop(), RequestCounters())
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
        at = BrokerTurns(asyncio.get_running_loop(), RequestCounters())
        held = [await begun(at, "a"), await begun(at, "a")]
        with pytest.raises(PermitAcquireTimeout):
            await begun(at, "b")
        assert at._counters.lookups_waiting == 0
        for turn in held:
            turn.release()

    run_virtual(play())
