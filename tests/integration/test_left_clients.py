"""Clients that have left are freed at once: a flood of short connections must not wait for a full collection."""

import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from proxy.clients.connection import ClientConnection
from proxy.net.output import Output
from proxy.net.tls.transport import TlsTransport
from proxy.relay.hand_over import HandOver, LeavingEnd
from proxy.relay.native_engine import NativeRelay
from tests.support.auth.tls import serve_with_tls
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Give a test without garbage collections."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> list[object]:
    """Return all that connections of clients left behind."""
    kinds = (ClientConnection, Output, NativeRelay, HandOver, LeavingEnd, TlsTransport)
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


async def connects(stage: Stage) -> AsyncClient:
    return await stage.connected()


async def asks(stage: Stage) -> AsyncClient:
    client = await stage.connected()
    await client.lookup(TOPIC)
    await client.topics(namespace(0))
    return client


async def begins_a_frame(stage: Stage) -> AsyncClient:
    client = await stage.connected()
    await client.send(b"\0\0\x10\0\0\0\x0f\xfc\x08")
    return client


async def is_relayed(stage: Stage) -> AsyncClient:
    client = await stage.relayed()
    await client.ping()
    return client


async def says_nothing(stage: Stage) -> AsyncClient:
    return await stage.client()


@pytest.mark.threat("garbage-of-idle-connections")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("what", [connects, asks, begins_a_frame, is_relayed, says_nothing])
@pytest.mark.usefixtures("uncollected")
async def test_a_client_that_left_needs_no_collection(
    what: Callable[[Stage], Awaitable[AsyncClient]], tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tls:
        serve_with_tls(tmp_path, monkeypatch)
    async with staged() as stage:
        for number in range(6):
            client = await what(stage)
            if number % 2:
                client.reset()
            else:
                client.close()
            del client
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        await stage.until(lambda: not alive(), "nothing left of the clients")
