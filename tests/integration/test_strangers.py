"""Listeners and names that clients bring along: relays to them hold no places, dials to them few sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.brokers import dialer, side
from proxy.net import dial_places
from proxy.relay import relay_crowds
from tests.support.brokers.raw_broker import handshake, raw_broker, silence
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame
from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged
from tests.support.sockets.names import SystemNames

# A listener of a client's own must not have the address that configuration names.
STRANGER = "127.0.0.66"
OTHER_ADDRESS = "127.0.0.2"
PLACES = 30


async def looks_up(stage: Stage, address: str, header: bytes = b"") -> None:
    newcomer = await stage.client(source=address)
    await newcomer.send(header)
    await newcomer.connect()
    assert (await newcomer.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


async def accepts_everybody(peer: AsyncClient) -> None:
    await handshake(peer)
    await silence(peer)


# --- places of connections --------------------------------------------------------------------------


@asynccontextmanager
async def full(kind: Callable[[Stage, int], Awaitable[AsyncClient]], **keys: Any) -> AsyncIterator[Stage]:
    """Run a proxy of which one address holds all places."""
    async with (
        raw_broker(accepts_everybody, host=STRANGER) as stranger,
        staged(maxConcurrentInboundConnections=PLACES, **keys) as stage,
    ):
        for _ in range(PLACES):
            await kind(stage, stranger.port)
        await stage.until(lambda: len(stage.proxy.sessions) == PLACES, "a full house")
        yield stage


async def relayed_to_a_stranger(stage: Stage, port: int) -> AsyncClient:
    client = await stage.client()
    await client.connect(target=f"{STRANGER}:{port}")
    return client


async def relayed_to_a_broker(stage: Stage, port: int) -> AsyncClient:
    return await stage.relayed()


async def asking(stage: Stage, port: int) -> AsyncClient:
    client = await stage.connected()
    await client.lookup(TOPIC)
    return client


@pytest.mark.threat("stranger-relays-fill")
@pytest.mark.parametrize("kind", [relayed_to_a_stranger, relayed_to_a_broker, asking])
async def test_whatever_one_address_holds_all_places_with_keeps_no_other_out(
    kind: Callable[[Stage, int], Awaitable[AsyncClient]],
) -> None:
    keys = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}
    header = encode(ProxyHeader(HostPort("203.0.113.1", 4000), HostPort("203.0.113.2", 6650)), 2)
    async with full(kind, **keys) as stage:
        await looks_up(stage, OTHER_ADDRESS)
        await looks_up(stage, OTHER_ADDRESS, header)
        assert len(stage.proxy.sessions) == PLACES
        # The end of a relay on threads is told a little later.
        await stage.until(lambda: stage.caused("connection_limit") == 2, "both ends")
        # Nobody leaves for the address that holds the others.
        late = await stage.client()
        await late.send(connect_frame())
        assert (await late.last_command()).error.error == ServerError.ServiceNotReady


@pytest.mark.threat("stranger-relays-fill")
async def test_newcomers_of_many_addresses_that_come_at_once_all_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_crowds, "QUIET_SECONDS", 0.0)
    async with full(relayed_to_a_stranger) as stage:
        newcomers = []
        for number in range(101, 113):
            sock = socket.socket()
            sock.setblocking(False)
            sock.bind((f"127.0.0.{number}", 0))
            sock.connect_ex((LOOPBACK, stage.proxy.port))
            newcomers.append(AsyncClient(sock))
        stage.clients += newcomers
        for newcomer in newcomers:
            await newcomer.send(connect_frame())
        for newcomer in newcomers:
            assert (await newcomer.command()).HasField("connected")
        assert len(stage.proxy.sessions) == PLACES
        await stage.until(lambda: stage.caused("connection_limit") == len(newcomers), "those who gave way")


@pytest.mark.threat("newcomers-end-workers")
async def test_relays_to_brokers_stay_while_one_to_a_stranger_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_crowds, "QUIET_SECONDS", 0.0)
    made = iter(range(PLACES))

    async def kind(stage: Stage, port: int) -> AsyncClient:
        # Two thirds lead to the broker.
        return await (relayed_to_a_broker if next(made) % 3 else relayed_to_a_stranger)(stage, port)

    async with full(kind) as stage:
        brokers = [client for number, client in enumerate(stage.clients) if number % 3]
        for _ in range(2):
            await looks_up(stage, OTHER_ADDRESS)
        for client in brokers:
            await client.ping()
        # The end of a relay on threads is told a little later.
        await stage.until(lambda: stage.caused("connection_limit") == 2, "both ends")


# --- sockets of dials -------------------------------------------------------------------------------

DIALS = 4
ADDRESSES = 40


def attempted(target: str) -> set[str]:
    """Give the local and the remote address of each attempt to connect to the port of a target at this moment."""
    port, rows = int(target.rpartition(":")[2]), Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()
    # The state after the addresses is SYN_SENT.
    return {" ".join(row.split()[1:3]) for row in rows if f":{port:04X} 02 " in row}


@asynccontextmanager
async def street(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, str]]:
    """Run a proxy, and give a target with many addresses that do not answer."""
    monkeypatch.setattr(side, "most_dials", lambda: DIALS)
    monkeypatch.setattr(dialer, "HEAD_START_SECONDS", 0.02)

    names = SystemNames(monkeypatch, STRANGER)
    names.own["many.test"] = [f"127.0.1.{number}" for number in range(1, ADDRESSES + 1)]
    # The kernel answers no SYN to a listener whose line is full.
    with socket.create_server(("0.0.0.0", 0), backlog=0) as listener, socket.socket() as first:
        first.connect(("127.0.0.1", listener.getsockname()[1]))
        async with staged() as stage:
            yield stage, f"many.test:{listener.getsockname()[1]}"


@pytest.mark.threat("dials-without-answer")
async def test_connects_to_a_name_with_many_silent_addresses_open_few_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, most = set[str](), 0
    async with street(monkeypatch) as (stage, target):

        async def look() -> None:
            nonlocal seen, most
            # At eight addresses for each dial.
            while len(seen) < DIALS * 8:
                now = attempted(target)
                seen, most = seen | now, max(most, len(now))
                await asyncio.sleep(0.001)

        async with in_time(), asyncio.TaskGroup() as group:
            # From before the first dial on: it may be through with its addresses before the last client has asked.
            group.create_task(look())
            for _ in range(3 * DIALS):
                await (await stage.client()).send(connect_frame(target))
        assert most <= 3 * DIALS
        # Known brokers need no place: another client of the same address is connected at once.
        await (await stage.relayed()).ping()


@pytest.mark.threat("dials-keep-others-out")
async def test_dials_of_one_address_that_last_keep_no_other_address_from_a_host_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dial_places, "LEAST_DIAL_SECONDS", 0.1)
    async with street(monkeypatch) as (stage, target), raw_broker(accepts_everybody, host=STRANGER) as host:
        for _ in range(3 * DIALS):
            await (await stage.client()).send(connect_frame(target))
        await stage.until(lambda: stage.books()["dials to made-up hosts"] == 3 * DIALS, "dials that wait")
        other = await stage.client(source=OTHER_ADDRESS)
        async with in_time():
            await other.connect(target=f"own.test:{host.port}")
        assert counted(stage.proxy.counters, "target_dials_given_up") >= 1
