"""Silent connections at `adminApiAddress`, by the eight and more: the operator is served, from whatever address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from proxy.web.admin import slots
from proxy.web.admin.listener import MOST_CONNECTIONS
from tests.support.clients.async_client import LOOPBACK, eventually
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.admin_api import Answered, ask, connect

TOKEN = "correct-horse-battery-staple"
ELSEWHERE = "127.0.0.2"


class Operator:
    """A stage and the client with the token."""

    def __init__(self, stage: Stage) -> None:
        self.admin = stage.proxy.admin
        self.port = stage.proxy.admin_port

    async def ask(self) -> Answered:
        return await ask(self.port, "GET", "/v1/top", headers={"Authorization": f"Bearer {TOKEN}"})

    async def all_held(self) -> None:
        await eventually(lambda: len(self.admin) == MOST_CONNECTIONS, "all slots held")


@asynccontextmanager
async def operated(tmp_path: Path) -> AsyncIterator[Operator]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    keys: dict[str, Any] = {
        "controlSocketPath": tmp_path / "s",
        "adminApiAddress": "127.0.0.1:0",
        "adminApiTokenFilePath": token,
    }
    async with staged(**keys) as stage:
        operator = Operator(stage)
        # The libraries are imported for the first client: until then nobody is silent.
        assert (await operator.ask()).status == 200
        await eventually(lambda: not len(operator.admin), "the slot free again")
        yield operator


# Connections of the own address give way after a while, which is over at once here; those of others need none.
@pytest.mark.threat("silent-admin-connections")
@pytest.mark.parametrize(("source", "silent_seconds"), [(ELSEWHERE, 60.0), (LOOPBACK, 0.0)])
async def test_silent_connections_give_way_to_the_operator(
    source: str, silent_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "SILENT_SECONDS", silent_seconds)
    async with operated(tmp_path) as operator:
        with ExitStack() as held:

            async def silent() -> asyncio.StreamReader:
                reader, writer = await connect(operator.port, source)
                held.callback(writer.close)
                return reader

            readers = [await silent() for _ in range(MOST_CONNECTIONS)]
            for number in range(MOST_CONNECTIONS):
                await operator.all_held()
                assert (await operator.ask()).status == 200
                # The oldest was ended for the operator.
                assert await rest_of(readers[number]) == b""
                readers.append(await silent())


@pytest.mark.threat("silent-admin-connections")
async def test_silent_connections_that_come_again_at_once_keep_no_operator_of_another_address_out(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path) as operator:

        async def again_and_again() -> None:
            while True:
                with suppress(ConnectionError):
                    reader, writer = await connect(operator.port, ELSEWHERE)
                    try:
                        await reader.read()
                    finally:
                        writer.close()

        async with asyncio.TaskGroup() as crowd:
            # No more than there are slots: more would be refused and come again without end, and take all ports.
            tasks = [crowd.create_task(again_and_again()) for _ in range(MOST_CONNECTIONS)]
            statuses = set()
            for _ in range(20):
                await operator.all_held()
                statuses.add((await operator.ask()).status)
            for task in tasks:
                task.cancel()
        assert statuses == {200}


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other side ends or resets a connection."""
    with suppress(ConnectionError):
        async with in_time():
            return await reader.read()
    return b""
