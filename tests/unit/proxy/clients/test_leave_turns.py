"""Clients that leave with many requests under way, many in the same iteration of the loop."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from proxy.clients.requests import LISTS_AT_ONCE
from proxy.core.errors import DisconnectCause
from tests.support.clients.async_client import topics_frame
from tests.support.clients.list_clients import turns
from tests.support.proxies.client_desk import Visitor, desk

# What an iteration of the loop may end.
CONNECTIONS = 12
# An RST is told in the first iteration, a cancelled task ends in the next, and its end is told in the one after that.
END_OF_A_TASK = 3


def fin(client: Visitor) -> None:
    client.session.eof_received()


def rst(client: Visitor) -> None:
    client.socket.abort()


def killed(client: Visitor) -> None:
    client.session.abort(DisconnectCause.KEEP_ALIVE_TIMEOUT)


async def steps(count: Callable[[], int], iterations: int = 100) -> list[int]:
    """Let the loop go on, and give by how much the count has changed in each iteration."""
    seen = [count()]
    for _ in range(iterations):
        await asyncio.sleep(0)
        seen.append(count())
    return [abs(after - before) for before, after in pairwise(seen)]


@pytest.mark.parametrize("leave", [fin, rst, killed])
async def test_lists_of_a_client_that_leaves_alone_give_all_back_in_the_next_iterations(
    leave: Callable[[Visitor], None],
) -> None:
    async with desk() as on:
        on.lists.gate = asyncio.Event()
        client, places = on.visitor(), on.services.requests.lookups.list_places
        client.arrives(b"".join(topics_frame(number, "t/n") for number in range(10)))
        await turns(10)
        assert (on.slots.held, places.held, places.waiting) == (LISTS_AT_ONCE, LISTS_AT_ONCE, 10 - LISTS_AT_ONCE)
        leave(client)
        await turns(END_OF_A_TASK)
        assert (on.slots.held, places.held, places.waiting) == (0, 0, 0)


@pytest.mark.threat("lookups-left-behind")
@pytest.mark.parametrize("leave", [fin, rst])
async def test_idle_clients_that_leave_together_are_closed_a_few_in_each_iteration(
    leave: Callable[[Visitor], None],
) -> None:
    async with desk() as on:
        for client in [on.visitor() for _ in range(100)]:
            leave(client)
        assert len(on.registry.ends) <= CONNECTIONS
        closed = await steps(lambda: len(on.registry.ends), 30)
        assert len(on.registry.ends) == 100
        assert max(closed) <= CONNECTIONS
