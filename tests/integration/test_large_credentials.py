"""Credentials of up to 64 KiB are forwarded; what is kept of large ones is charged, and equal ones once."""

from typing import Any

import pytest

from protocol.errors import ServerError
from proxy.auth.kept_credentials import FREE_BYTES, KEPT_OF
from proxy.core.public_causes import PublicCause, authentication_text
from tests.integration.test_client_authentication import BOTH, FORWARDING, PROXY_ROLE, connects
from tests.support.auth.credentials import (
    NOON,
    Court,
    admitted,
    challenged,
    court,
    presenting,
    refused,
    response,
    turned_away,
)
from tests.support.brokers.embedded import record
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import MIB, TOPIC, namespace

KIB = 1024
LARGEST = 64 * KIB
BIG = 60 * KIB
SMALL_MEMORY: dict[str, Any] = {"maxTopicListInFlightDirectMemSizeMB": 8, **FORWARDING}
# Of one network.
FIT = (MIB - MIB // KEPT_OF) // (BIG - FREE_BYTES)
sizes = pytest.mark.parametrize("size", [4 * KIB, 4 * KIB + 1, 9 * KIB, BIG, LARGEST])


@pytest.fixture(autouse=True)
def _a_broker_that_keeps_large_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LARGEST_KEPT_BYTES", 3 * LARGEST)


def data_of(role: str, size: int) -> str:
    return role + "." * (size - len(role))


def held(at: Court) -> int:
    return at.authentication.holders.kept.memory.held


async def gone(at: Court, *clients: AsyncClient) -> None:
    for client in clients:
        client.close()
    await at.stage.until(lambda: held(at) == 0, "all memory back")


@BOTH
@sizes
async def test_credentials_of_up_to_64_kib_are_taken(size: int, forwarding: dict[str, Any]) -> None:
    async with court(**PROXY_ROLE, **forwarding) as at:
        data = data_of("alice", size)
        client = await at.client(data)
        await client.lookup(TOPIC)
        await client.topics(namespace(0))
        forwards = forwarding == FORWARDING
        expected = max(0, size - FREE_BYTES) if forwards else 0
        assert held(at) == expected
        relayed = await at.client(data, target=at.target)
        await relayed.topics(namespace(0))
        assert {seen.original_auth_data for seen in connects(at)} == {data if forwards else ""}
        await gone(at, client, relayed)


async def test_the_largest_credentials_fit_beside_all_that_a_client_may_say_for_another() -> None:
    async with court(**FORWARDING) as at:
        largest = data_of("alice", LARGEST)
        await at.client(largest, target=at.target, original_auth_data="x" * LARGEST, original_principal="eve")
        assert [(seen.original_auth_data, seen.original_principal) for seen in connects(at)] == [(largest, "alice")]


@pytest.mark.threat("large-credentials-kept")
async def test_who_finds_no_memory_for_large_credentials_is_told_to_come_again() -> None:
    async with court(**SMALL_MEMORY) as at:
        clients = [await at.client(data_of(f"alice/{number}", BIG)) for number in range(FIT)]
        refusal = await turned_away(at.stage, presenting(data_of("bob", BIG)))
        assert (refusal.error, refusal.message) == (ServerError.ServiceNotReady, authentication_text(PublicCause.BUSY))
        # Those that need none are not concerned, nor those whose credentials are there already.
        await at.client("carol")
        await at.client(data_of("alice/0", BIG))
        # One network has not taken all.
        elsewhere = await admitted(at.stage, presenting(data_of("dave", BIG)), "127.0.0.2")
        elsewhere.close()
        clients.pop().close()
        await at.stage.until(lambda: held(at) == (FIT - 1) * (BIG - FREE_BYTES), "memory given back")
        clients.append(await at.client(data_of("bob", BIG)))
        await gone(at, *at.stage.clients)


async def test_equal_large_credentials_are_charged_once_until_the_last_of_their_clients_has_left() -> None:
    async with court(**SMALL_MEMORY) as at:
        clients = [await at.client(data_of("alice", BIG)) for _ in range(3 * FIT)]
        assert held(at) == BIG - FREE_BYTES
        for client in clients[1:]:
            client.reset()
        await at.stage.until(lambda: len(at.stage.proxy.sessions) == 1, "one client")
        assert held(at) == BIG - FREE_BYTES
        await gone(at, clients[0])


@pytest.mark.threat("large-credentials-kept")
async def test_a_relay_keeps_no_credentials() -> None:
    async with court(**SMALL_MEMORY) as at:
        for number in range(FIT + 2):
            await at.client(data_of(f"alice/{number}", BIG), target=at.target)
        assert held(at) == 0
        assert len(connects(at)) == FIT + 2


async def test_newer_large_credentials_take_the_memory_of_the_old() -> None:
    async with court(**SMALL_MEMORY) as at:
        client = await at.client(data_of(f"alice/1 until {NOON}", BIG))
        at.look()
        await challenged(client)
        await client.send(response(data_of(f"alice/2 until {NOON + 9}", LARGEST)))
        await at.stage.until(lambda: held(at) == LARGEST - FREE_BYTES, "the newer credentials alone")
        await client.topics(namespace(0))
        others = [await at.client(data_of(f"bob/{number}", BIG)) for number in range(FIT - 2)]
        at.now += 9
        at.look()
        await challenged(client)
        await client.send(response(data_of("alice/3", BIG)))
        assert (await refused(client)).message == authentication_text(PublicCause.BUSY)
        await at.stage.until(lambda: held(at) == (FIT - 2) * (BIG - FREE_BYTES), "the memory of who was closed")
        await gone(at, *others)
