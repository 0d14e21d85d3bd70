"""Clients that leave with many requests under way, many in the same iteration of the loop."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from proxy.clients.handshake import ClientHandshake
from proxy.clients.large_frames import LargeFrames
from proxy.clients.requests import LISTS_AT_ONCE, ClientRequests
from proxy.core.errors import DisconnectCause
from proxy.net.output import Output
from tests.support.brokers.one_broker import SilentBroker
from tests.support.clients.async_client import PING, lookup_frame, topics_frame
from tests.support.clients.list_clients import turns
from tests.support.proxies.client_desk import BROKER, Desk, Visitor, desk

# What an iteration of the loop may end.
TASKS, CONNECTIONS = 24, 12
CLIENTS, LOOKUPS_EACH = 8, 90
# An RST is told in the first iteration, a cancelled task ends in the next, and its end is told in the one after that.
END_OF_A_TASK = 3


def fin(client: Visitor) -> None:
    client.session.eof_received()


def rst(client: Visitor) -> None:
    client.socket.abort()


def rst_unread(client: Visitor) -> None:
    client.session._hung_up(True)


def killed(client: Visitor) -> None:
    client.session.abort(DisconnectCause.KEEP_ALIVE_TIMEOUT)


async def busy_clients(on: Desk) -> list[Visitor]:
    """Let clients in, each of whose lookups wait for a broker that does not come up."""
    on.services.requests.lookups.forwarder.brokers = SilentBroker(BROKER)
    clients = [on.visitor() for _ in range(CLIENTS)]
    for client in clients:
        for number in range(LOOKUPS_EACH):
            client.arrives(lookup_frame(number, "t"))
            await asyncio.sleep(0)
    await turns(100)
    assert on.slots.held == CLIENTS * LOOKUPS_EACH
    return clients


async def steps(count: Callable[[], int], iterations: int = 100) -> list[int]:
    """Let the loop go on, and give by how much the count has changed in each iteration."""
    seen = [count()]
    for _ in range(iterations):
        await asyncio.sleep(0)
        seen.append(count())
    return [abs(after - before) for before, after in pairwise(seen)]


@pytest.mark.threat("lookups-left-behind")
@pytest.mark.parametrize("leave", [fin, rst, rst_unread, killed])
async def test_places_of_lookups_come_back_a_few_in_each_iteration_and_all_in_the_end(
    leave: Callable[[Visitor], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk() as on:
        for client in await busy_clients(on):
            leave(client)
        ended = await steps(lambda: on.slots.held)
        assert max(ended) <= TASKS
        assert (on.slots.held, len(on.services.requests.leaving)) == (0, 0)


@pytest.mark.parametrize("leave", [fin, rst, rst_unread, killed])
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


async def test_a_neighbour_is_served_while_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as on:
        neighbour = on.visitor()
        for client in await busy_clients(on):
            rst(client)
        await turns(5)
        assert on.slots.held > 0
        neighbour.arrives(PING)
        assert neighbour.answered() == ["pong"]
        await turns(100)


async def test_a_lookup_that_is_answered_before_its_turn_to_end_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as on:
        gate = asyncio.Event()

        on.services.requests.lookups.forwarder.brokers = SilentBroker(BROKER, gate)
        client = on.visitor()
        for number in range(LOOKUPS_EACH):
            client.arrives(lookup_frame(number, "t"))
        await turns(20)
        assert on.slots.held == LOOKUPS_EACH
        rst(client)
        gate.set()
        await turns(20)
        assert (on.slots.held, len(on.services.requests.leaving)) == (0, 0)
        assert bytes(client.socket.peer_bytes) == b""


@pytest.mark.threat("lookups-left-behind")
@pytest.mark.parametrize("leave", [fin, rst, rst_unread])
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


PARTS = [(ClientRequests, "close"), (Output, "close"), (LargeFrames, "close"), (ClientHandshake, "close")]


@pytest.mark.parametrize("broken", PARTS, ids=lambda part: part[0].__name__)
async def test_a_part_whose_end_raises_keeps_no_other_from_giving_back(
    broken: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk() as on:
        client, ended = on.visitor(), list[str]()

        def watch(part: type, name: str) -> None:
            usual = getattr(part, name)

            def end(self: object) -> None:
                ended.append(part.__name__)
                usual(self)
                if part is broken[0]:
                    raise ValueError

            monkeypatch.setattr(part, name, end)

        for part in PARTS:
            watch(*part)
        client.session.abort(DisconnectCause.KEEP_ALIVE_TIMEOUT)
        assert ended == [part.__name__ for part, _ in PARTS]
        assert len(on.registry.ends) == 1
        assert on.counters.shared.internal_errors == {"client connection": 1}
        on.counters.shared.internal_errors.clear()
