"""Many clients of the web port with TLS that do not go on with their handshake hold up nobody else."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.net.tls import places
from tests.integration.test_tls_crowds import CROWD_ADDRESS, NEVER_SECONDS, hello, times
from tests.integration.test_web_tls import tls_port, web_keys
from tests.support.auth.tls import PemFiles, client_context
from tests.support.clients.async_client import LOOPBACK, AsyncClient
from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.web.web_stage import WebStage, web_staged

MANY = 60


@asynccontextmanager
async def tls_web(files: PemFiles, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[WebStage]:
    """Give a web port with TLS on which nobody is closed for being slow."""
    monkeypatch.setattr("proxy.web.accept.HANDSHAKE_SECONDS", NEVER_SECONDS)
    async with web_staged(**web_keys(files), **keys) as at:
        yield at


async def crowd(at: WebStage, sent: bytes, number: int = MANY) -> list[AsyncClient]:
    """Give clients of another address that have sent `sent`, and nothing after it."""
    clients = []
    for _ in range(number):
        client = AsyncClient(socket.create_connection((LOOPBACK, tls_port(at)), source_address=(CROWD_ADDRESS, 0)))
        client.sock.setblocking(False)
        at.stage.clients.append(client)
        await client.send(sent)
        clients.append(client)
    return clients


async def is_served(at: WebStage) -> None:
    """Get a page over a connection of its own."""
    async with in_time():
        url = f"https://localhost:{tls_port(at)}/healthz"
        async with at.client.get(url, ssl=client_context(), headers={"Connection": "close"}) as answer:
            assert answer.status == 200


@pytest.mark.threat("handshakes-of-web-port")
async def test_half_done_handshakes_never_hold_more_than_their_places(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, 0.05, 0.05)
    async with tls_web(files, monkeypatch, maxConcurrentTlsHandshakes=4) as at:
        counters = at.stage.proxy.counters
        # A part of a hello takes none.
        for part in (0, 1, 100, -1):
            await crowd(at, hello()[:part], 4)
        await is_served(at)
        assert (counted(counters, "tls_handshakes_in_flight"), counted(counters, "tls_handshakes_waiting")) == (0, 0)
        clients = await crowd(at, hello())
        await at.stage.until(
            lambda: counted(counters, "tls_handshakes", "client", "displaced") >= MANY - 4, "places change hands"
        )
        assert counted(counters, "tls_handshakes_in_flight") == 4
        monkeypatch.setattr(places, "PLACE_SECONDS", NEVER_SECONDS)
        await is_served(at)
        for client in clients:
            client.close()
        await at.stage.until(lambda: not counted(counters, "tls_handshakes_in_flight"), "all places free")


@pytest.mark.threat("handshakes-of-web-port")
async def test_silent_connections_of_one_address_drive_out_no_other_that_says_little(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_web(files, monkeypatch, maxHttpServerConnections=8) as at:
        slow = await AsyncClient.open(tls_port(at))
        at.stage.clients.append(slow)
        await slow.send(hello()[:100])
        await crowd(at, b"")
        await is_served(at)
        await slow.send(hello()[100:])
        # The handshake may not succeed, since the two parts are of two hellos, but it has an answer.
        assert await slow.receive(1)
