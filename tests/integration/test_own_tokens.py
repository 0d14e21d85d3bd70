"""Clients of one role with a token each, which brokers get: what that costs, and who shares a list all the same."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import request_id_of
from protocol.errors import ServerError
from proxy.auth.identity import Principal
from tests.support.auth.credentials import Court, court
from tests.support.brokers.raw_broker import CONNECTED, list_answer, raw_broker, request
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.events import CheckedSink
from tests.support.proxies.proxy_under_test import namespace
from tests.support.proxies.shared_lists import LISTS, all_have_lists, has_list

FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "true"}
BY_ROLE: dict[str, Any] = {**FORWARDING, "topicListSharedBy": "role"}
TOPICS = ("persistent://demo/ns-00/a", "persistent://demo/ns-00/b")
FEW = 4


async def crowd(held: Court, count: int, role: str = "alice") -> list[AsyncClient]:
    """Connect clients of one role, each with credentials of its own."""
    return [await held.client(f"{role}/{number}") for number in range(count)]


async def all_ask(held: Court, clients: list[AsyncClient]) -> None:
    """Have all ask for one list, in their order; each has joined what it can when this returns."""
    for client in clients:
        more = held.stage.lookups.held + 1
        await client.ask_topics(namespace(0))
        await held.stage.until(lambda asked=more: held.stage.lookups.held == asked, "a request read")  # type: ignore[misc]


def connects(held: Court) -> int:
    return len(held.stage.broker.record.commands(CommandType.CONNECT))


@pytest.mark.threat("pool-waiters-chain", "token-each-takes-connections")
async def test_each_client_costs_one_connection_and_there_are_never_too_many() -> None:
    async with court(**FORWARDING, brokerConnectionsTotal=FEW) as held:
        clients = await crowd(held, 40)
        for client in clients:
            await client.ask_topics(namespace(0))
        lists = asyncio.gather(*(has_list(client) for client in clients))
        while not lists.done():
            assert held.stage.proxy.broker_side.pool.size <= FEW
            await asyncio.sleep(0)
        await lists
        assert connects(held) == len(clients)
        assert held.stage.broker.record.received[LISTS] == len(clients)


@pytest.mark.threat("pool-waiters-chain")
async def test_who_finds_the_pool_full_of_idle_connections_closes_one() -> None:
    async with court(**FORWARDING, brokerConnectionsTotal=FEW) as held:
        clients = await crowd(held, FEW + 1)
        for client in (*clients, *clients[1:]):
            assert (await client.topics(namespace(0))).topics
        assert connects(held) == len(clients)


async def test_clients_of_one_role_share_a_list_where_the_operator_says_so() -> None:
    events = CheckedSink(keep=True)
    async with court(**BY_ROLE, events=events) as held:
        gate = held.stage.broker.script.hold(LISTS)
        clients = await crowd(held, 20)
        await clients[0].ask_topics(namespace(0))
        await held.stage.broker.record.seen(LISTS, 1)
        await all_ask(held, clients[1:])
        stranger = await held.client("bob")
        await stranger.ask_topics(namespace(0))
        # One question for those who came later, one for another role, with the connection of each.
        gate.set()
        await all_have_lists([*clients, stranger])
        assert held.stage.broker.record.received[LISTS] == 3
        assert connects(held) == 3
    # Events of requests that might have shared a question have its hash in common.
    assert sorted(Counter(event["question_hash"] for event in events.kept).values()) == [1, len(clients)]


@pytest.mark.threat("list-by-another-token")
async def test_a_reload_changes_who_shares() -> None:
    async with court(**FORWARDING) as held:
        gate = held.stage.broker.script.hold(LISTS)
        first, second, third, fourth = await crowd(held, 4)
        await all_ask(held, [first, second])
        await held.stage.broker.record.seen(LISTS, 2)
        held.stage.change(topicListSharedBy="role")
        await all_ask(held, [third])
        await held.stage.broker.record.seen(LISTS, 3)
        await all_ask(held, [fourth])
        assert held.stage.broker.record.received[LISTS] == 3
        gate.set()
        await all_have_lists([first, second, third, fourth])
        # The fourth has waited for the question of the third.
        assert held.stage.broker.record.received[LISTS] == 4


async def test_whoever_lends_credentials_may_leave() -> None:
    async with court(**BY_ROLE) as held:
        gate = held.stage.broker.script.hold(LISTS)
        clients = await crowd(held, 4)
        await all_ask(held, clients)
        await held.stage.broker.record.seen(LISTS, 1)
        # Those who came later wait for the question of the first, and the second might ask for them.
        clients[1].close()
        await held.stage.until(lambda: held.stage.lookups.held == 3, "a client gone")
        gate.set()
        await all_have_lists([clients[0], *clients[2:]])
        asked = [
            command.connect.original_auth_data for command in held.stage.broker.record.commands(CommandType.CONNECT)
        ]
        assert asked[0] == "alice/0"
        assert asked[1:] in (["alice/2"], ["alice/3"])


@dataclass
class Wary:
    """A broker that believes no token in `refused`, at CONNECT, or where a list is asked for if `late`."""

    refused: set[str] = field(default_factory=set)
    late: bool = False
    code: int = ServerError.AuthenticationError
    # Until it opens, no CONNECT is answered.
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Counter[str] = field(default_factory=Counter)

    async def serve(self, peer: AsyncClient) -> None:
        connect = (await request(peer)).connect
        self.seen["connects"] += 1
        await self.gate.wait()
        refuses = connect.original_auth_data in self.refused
        if refuses and not self.late:
            await peer.send(commands.error(-1, self.code, "not believed"))
            return
        await peer.send(CONNECTED)
        while True:
            asked = request_id_of(await request(peer))
            self.seen["lists"] += 1
            await peer.send(commands.error(asked, self.code, "not believed") if refuses else list_answer(asked, TOPICS))


@asynccontextmanager
async def before(broker: Wary, keys: dict[str, Any]) -> AsyncIterator[Court]:
    async with raw_broker(broker.serve) as raw, court(broker_port=raw.port, **keys) as held:
        yield held


AUTHORIZATION = ServerError.AuthorizationError
SIX = [f"alice/{number}" for number in range(6)]


@pytest.mark.threat("list-by-another-token")
@pytest.mark.parametrize(
    ("clients", "broker", "refused", "seen"),
    [
        (SIX, Wary({"alice/0", "alice/1"}), 2, {"connects": 3, "lists": 1}),
        (SIX, Wary({"alice/0", "alice/1"}, late=True), 2, {"connects": 3, "lists": 3}),
        (SIX, Wary({"alice/0", "alice/1"}, code=AUTHORIZATION), 2, {"connects": 3, "lists": 1}),
        (["alice/0"] * 20 + ["alice/1"], Wary({"alice/0"}), 20, {"connects": 2, "lists": 1}),
        (SIX, Wary({*SIX}), 6, {"connects": 6}),
        # What a role may not do is asked once.
        (SIX, Wary({"alice/0"}, late=True, code=AUTHORIZATION), 6, {"connects": 1, "lists": 1}),
    ],
    ids=["token", "token of a list", "role at CONNECT", "token of many", "all tokens", "role"],
)
async def test_a_token_that_a_broker_refuses_is_the_affair_of_its_own_clients(
    clients: list[str], broker: Wary, refused: int, seen: dict[str, int]
) -> None:
    # What it has seen is of this run alone.
    broker = replace(broker, gate=asyncio.Event(), seen=Counter())
    async with before(broker, BY_ROLE) as held:
        asking = [await held.client(data) for data in clients]
        await all_ask(held, asking)
        broker.gate.set()
        for client in asking[:refused]:
            assert (await client.answer()).error.error == broker.code
        await all_have_lists(asking[refused:], len(TOPICS))
        assert broker.seen == seen


async def test_tokens_of_clients_that_left_are_gone_while_those_of_others_are_refused() -> None:
    async def serve(peer: AsyncClient) -> None:
        await request(peer)
        # There is always somebody whose token was not tried yet.
        await asyncio.sleep(0.05)
        await peer.send(commands.error(-1, ServerError.AuthenticationError, "not believed"))

    async with raw_broker(serve) as raw, court(broker_port=raw.port, **BY_ROLE) as held:
        clients: list[AsyncClient] = []
        for number in range(60):
            clients.append(await held.client(f"alice/{number}"))
            await clients[-1].ask_topics(namespace(0))
            if len(clients) > FEW:
                leaver = clients.pop(0)
                await leaver.answer()
                leaver.close()
        held.judge.asked.clear()
        held.look()
        assert len(tokens_held("alice")) < 30


def tokens_held(role: str) -> set[bytes]:
    """Return the forwarded credentials of a role that are anywhere in this process."""
    # Errors and their frames refer to each other: what only they have is garbage.
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, Principal) and each.original is not None]
    return {each.original.data for each in found if each.original is not None and each.role == role}


async def test_who_are_all_refused_are_all_told_so() -> None:
    broker = Wary({"alice/0", "alice/1", "alice/2"})
    async with before(broker, BY_ROLE) as held:
        clients = await crowd(held, 3)
        await all_ask(held, clients)
        broker.gate.set()
        for client in clients:
            assert (await client.answer()).error.error == ServerError.AuthenticationError
        assert broker.seen == {"connects": 3}


async def test_what_a_role_may_not_do_is_asked_once() -> None:
    broker = Wary({"alice/0"}, late=True, code=ServerError.AuthorizationError)
    async with before(broker, BY_ROLE) as held:
        clients = await crowd(held, 3)
        await all_ask(held, clients)
        broker.gate.set()
        for client in clients:
            assert (await client.answer()).error.error == ServerError.AuthorizationError
        assert broker.seen == {"connects": 1, "lists": 1}
