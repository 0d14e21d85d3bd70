"""Silent connections at `adminApiAddress`, by the eight and more: the operator is served, from whatever address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from proxy.web.admin import slots
from proxy.web.admin.listener import MOST_CONNECTIONS
from tests.support.clients.async_client import LOOPBACK, eventually
from tests.support.patience import in_time
from tests.support.web.admin_api import TOKEN, AdminStage, Answered, admin_staged, ask, connect

ELSEWHERE = "127.0.0.2"


@asynccontextmanager
async def operated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AdminStage]:
    async with admin_staged(tmp_path, monkeypatch, at_address=True) as api:
        # The libraries are imported for the first client: until then nobody is silent.
        assert (await by_token(api)).status == 200
        await api.nobody_asks()
        yield api


async def by_token(api: AdminStage) -> Answered:
    return await ask(api.stage.proxy.admin_port, "GET", "/v1/top", headers={"Authorization": f"Bearer {TOKEN}"})


async def all_held(api: AdminStage) -> None:
    await eventually(lambda: len(api.stage.proxy.admin) == MOST_CONNECTIONS, "all slots held")


# Connections of the own address give way after a while, which is over at once here; those of others need none.
@pytest.mark.threat("silent-admin-connections")
@pytest.mark.parametrize(("source", "silent_seconds"), [(ELSEWHERE, 60.0), (LOOPBACK, 0.0)])
async def test_silent_connections_give_way_to_the_operator(
    source: str, silent_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "SILENT_SECONDS", silent_seconds)
    async with operated(tmp_path, monkeypatch) as api:
        with ExitStack() as held:

            async def silent() -> asyncio.StreamReader:
                reader, writer = await connect(api.stage.proxy.admin_port, source)
                held.callback(writer.close)
                return reader

            readers = [await silent() for _ in range(MOST_CONNECTIONS)]
            for number in range(MOST_CONNECTIONS):
                await all_held(api)
                assert (await by_token(api)).status == 200
                # The oldest was ended for the operator.
                assert await rest_of(readers[number]) == b""
                readers.append(await silent())


@pytest.mark.threat("silent-admin-connections")
async def test_silent_connections_that_come_again_at_once_keep_no_operator_of_another_address_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with operated(tmp_path, monkeypatch) as api:

        async def again_and_again() -> None:
            while True:
                with suppress(ConnectionError):
                    reader, writer = await connect(api.stage.proxy.admin_port, ELSEWHERE)
                    try:
                        await reader.read()
                    finally:
                        writer.close()

        async with asyncio.TaskGroup() as crowd:
            # No more than there are slots: more would be refused and come again without end, and take all ports.
            tasks = [crowd.create_task(again_and_again()) for _ in range(MOST_CONNECTIONS)]
            statuses = set()
            for _ in range(20):
                await all_held(api)
                statuses.add((await by_token(api)).status)
            for task in tasks:
                task.cancel()
        assert statuses == {200}


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other side ends or resets a connection."""
    with suppress(ConnectionError):
        async with in_time():
            return await reader.read()
    return b""
