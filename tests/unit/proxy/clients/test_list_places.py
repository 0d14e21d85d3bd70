"""Topic lists wait without a place among the lookups, begin in turns by principal, and wait only in bounded number."""

import asyncio

import pytest

from protocol.errors import ServerError
from proxy.auth.identity import Principal
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.requests.places import FEW_WAITING, ListPlaces
from tests.support.clients.async_client import PING, topics_frame
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual
from tests.support.proxies.client_desk import Desk, desk


def lists(*numbers: int) -> bytes:
    return b"".join(topics_frame(number, "t/n") for number in numbers)


def limited(on: Desk, limit: int) -> ListPlaces:
    """Set `maxConcurrentLookupRequests`, and let no list end."""
    on.services.requests.lookups.apply(limit, 1.0)
    on.lists.gate = asyncio.Event()
    return on.services.requests.lookups.list_places


def open_gate(on: Desk) -> None:
    assert on.lists.gate is not None
    on.lists.gate.set()


async def test_lists_that_wait_for_an_earlier_list_hold_no_place() -> None:
    async with desk() as on:
        places = limited(on, 1000)
        on.visitor().arrives(lists(*range(50)))
        await turns(20)
        assert (on.slots.held, places.held, places.waiting) == (LISTS_AT_ONCE, LISTS_AT_ONCE, 50 - LISTS_AT_ONCE)
        open_gate(on)
        await turns(200)
        assert on.lists.served == list(range(50))


@pytest.mark.threat("lists-take-lookup-places")
async def test_lists_take_at_most_three_quarters_of_the_places() -> None:
    async with desk() as on:
        places = limited(on, 8)
        for number in range(10):
            on.visitor().arrives(lists(number))
        await turns(10)
        assert (on.slots.held, places.held, places.queue_size) == (6, 6, 4)
        open_gate(on)
        await turns(50)
        assert sorted(on.lists.served) == list(range(10))


async def test_places_are_given_in_turns_by_principal() -> None:
    async with desk() as on:
        # Three places; the fourth is for lookups.
        places = limited(on, 4)
        for number in range(13):
            visitor = on.visitor()
            visitor.session.principal = Principal("few" if number == 12 else "many")
            visitor.arrives(lists(number))
        await turns(10)
        assert places.queue_size == 10
        open_gate(on)
        await turns(100)
        assert on.lists.served.index(12) <= 5


async def test_a_list_whose_turn_comes_while_lookups_hold_every_place_is_refused() -> None:
    async with desk() as on:
        limited(on, 4)
        asker = on.visitor()
        asker.arrives(lists(1, 2, 3, 4))
        await turns(10)
        lookups = [on.services.requests.lookups.try_begin((asker.session.network, 0), 0.0) for _ in range(2)]
        on.services.requests.lookups.apply(2, 1.0)
        open_gate(on)
        await turns(30)
        answers = asker.answers()
        assert [answer.error.request_id for answer in answers] == [1, 2, 3, 4]
        assert [answer.error.error for answer in answers[2:]] == [ServerError.TooManyRequests] * 2
        for slot in lookups:
            assert slot is not None
            slot.release()


def test_a_list_that_waits_too_long_for_a_place_is_handed_on_to_be_refused() -> None:
    async def play() -> None:
        async with desk() as on:
            places = limited(on, 16)
            for number in range(12):
                on.visitor().arrives(lists(number))
            late = on.visitor()
            late.arrives(lists(12, 13))
            await asyncio.sleep(27)
            assert (on.lists.served, places.waiting) == ([*range(12)], 2)
            await asyncio.sleep(2)
            assert on.lists.served == [*range(14)]
            assert on.slots.held == 12
            open_gate(on)
            await turns(10)

    run_virtual(play())


@pytest.mark.threat("lists-take-lookup-places")
async def test_when_many_lists_wait_a_connection_lets_few_wait() -> None:
    async with desk() as on:
        places = limited(on, 40)
        greedy = on.visitor()
        greedy.arrives(lists(*range(30)))
        await turns(10)
        assert places.crowded
        modest = on.visitor()
        modest.arrives(lists(*range(100, 100 + LISTS_AT_ONCE + FEW_WAITING)))
        modest.arrives(lists(200) + PING)
        await turns(10)
        assert (greedy.session.holds, modest.session.holds) == (("outstanding",), ("outstanding",))
        quick = on.visitor()
        quick.arrives(lists(300))
        assert quick.session.reading
        open_gate(on)
        await turns(200)
        assert {200, 300} <= set(on.lists.served)
        assert "pong" in modest.answered()
        assert modest.session.reading
