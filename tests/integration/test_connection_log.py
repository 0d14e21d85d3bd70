"""The connection log of a whole proxy: both lines of each kind of connection, and a share that changes live."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.core.log import FIELDS
from tests.support.clients.async_client import AsyncClient
from tests.support.log_lines import LogLines
from tests.support.proxies import proxy_under_test
from tests.support.proxies.proxy_under_test import Stage, namespace, staged


class Logged:
    """A stage whose log is kept."""

    def __init__(self, stage: Stage, log: LogLines) -> None:
        self.stage = stage
        self.lines = log.of

    async def gone(self, *clients: AsyncClient) -> None:
        left = len(self.stage.proxy.sessions) - len(clients)
        for client in clients:
            client.close()
        await self.stage.until(lambda: len(self.stage.proxy.sessions) == left, "clients that have left")


@asynccontextmanager
async def logged(monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[Logged]:
    log = LogLines()
    monkeypatch.setattr(proxy_under_test, "_log", lambda: log.log)
    async with staged(**keys) as stage:
        yield Logged(stage, log)


def name_of(client: AsyncClient) -> str:
    return "{}:{}".format(*client.sock.getsockname())


async def test_each_kind_of_connection_has_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    async with logged(monkeypatch, connectionLogPercent=100) as proxy:
        stage = proxy.stage
        silent, lookup, relayed = await stage.client(), await stage.connected(), await stage.relayed()
        names = [name_of(client) for client in (silent, lookup, relayed)]
        size = (await lookup.topics(namespace(0))).ByteSize()
        await relayed.ping()
        begun = proxy.lines("client connected")
        assert [(line["client"], line["mode"]) for line in begun] == [(names[1], "lookup"), (names[2], "relay")]
        for client in (silent, lookup, relayed):
            await proxy.gone(client)
        ended = proxy.lines("connection ended")
        assert [(line["client"], line["mode"], line["cause"]) for line in ended] == [
            (name, mode, "client_closed") for name, mode in zip(names, ("handshake", "lookup", "relay"), strict=True)
        ]
        assert [line["connection"] for line in ended] == [1, 2, 3]
        assert {line["client_version"] for line in begun} == {"async-client"}
        assert ended[1]["bytes_to_client"] > size
        assert ended[1]["bytes_from_client"] > 0 == ended[0]["bytes_from_client"]
        assert ended[2]["broker"] == f"127.0.0.1:{stage.broker.port}"
        assert ended[2]["bytes_from_client"] > 0 < ended[2]["bytes_to_client"]
        assert {name for line in (*begun, *ended) for name in line} <= set(FIELDS)


async def test_it_is_off_by_default_and_begins_and_ends_while_the_proxy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with logged(monkeypatch) as proxy:
        await proxy.gone(await proxy.stage.connected())
        assert proxy.lines("connection ended") == []
        proxy.stage.change(connectionLogPercent=100)
        await proxy.gone(await proxy.stage.connected())
        assert [line["connection"] for line in proxy.lines("connection ended")] == [2]
        # The level of its part of the log turns it off, too.
        proxy.stage.change(logLevelByComponent="connections=warning")
        await proxy.gone(await proxy.stage.connected())
        proxy.stage.change(logLevelByComponent="")
        proxy.stage.change(connectionLogPercent=0)
        await proxy.gone(await proxy.stage.connected())
        assert len(proxy.lines("connection ended")) == len(proxy.lines("client connected")) == 1


@pytest.mark.threat("connection-log-storm")
async def test_a_storm_of_connections_is_a_bounded_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    async with logged(monkeypatch, connectionLogPercent=100) as proxy:
        began = proxy.stage.proxy.loop.time()
        clients = await asyncio.gather(*(proxy.stage.connected() for _ in range(120)))
        await proxy.gone(*clients)
        seconds = int(proxy.stage.proxy.loop.time()) - int(began) + 1
        lines = [*proxy.lines("client connected"), *proxy.lines("connection ended")]
        assert 100 <= len(lines) <= 100 * seconds
        told = sum(line.get("connections_since_last_line", 0) for line in lines)
        assert len(lines) + told <= 240
