"""Topic lists over HTTP whose clients do not read: they share a part of direct memory, and leave the rest to others.

All but one are of one address; it leaves an eighth of each thing that lists wait for to clients of other addresses.
"""

import asyncio
from typing import Any, Final

import pytest
from aiohttp import web

from proxy.app import proxy as app
from proxy.web.forward import broker_client
from tests.integration.test_http_topic_lists import LIST_BYTES, large_list, slow_reader
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import MIB, TOPICS, namespace
from tests.support.proxies.storms import STORM, pass_by
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

BUFFER: Final = 16 * 1024
WINDOW: Final = 4 * BUFFER
LIMIT_MIB: Final = 4
# A quarter of direct memory is for those of whom nothing is known; one address has seven eighths of that.
IN_SHARE: Final = LIMIT_MIB * MIB // 4 * 7 // 8 // WINDOW
OTHER_ADDRESS: Final = "127.0.0.2"
MANY: Final = LIMIT_MIB * MIB // WINDOW + 4
WEB_STORM: Final[dict[str, Any]] = {
    **STORM,
    "httpOutputBufferSize": BUFFER,
    "maxTopicListInFlightDirectMemSizeMB": LIMIT_MIB,
    "topicListMaxOutstandingPerBroker": MANY,
}


def awake(at: WebStage) -> Any:
    return at.stage.proxy.memory.unproven.shares.awake


async def standing(at: WebStage, number: int = MANY) -> list[AsyncClient]:
    """Ask for lists, and read nothing of them; give the clients when all that have no memory wait for it."""
    at.broker.answer = large_list
    clients = [await slow_reader(at) for _ in range(number)]
    direct = at.stage.direct
    await at.stage.until(
        lambda: direct.held // WINDOW + direct.queue_size + awake(at).queue_size == number, "all answers begun"
    )
    return clients


@pytest.mark.threat("unread-web-lists")
async def test_web_clients_that_read_nothing_leave_memory_to_those_that_read() -> None:
    async with web_staged(**WEB_STORM) as at:
        await standing(at)
        assert at.stage.direct.held == IN_SHARE * WINDOW
        client = await at.stage.connected()
        await client.ask_topics(namespace(0))
        answer = await client.answer(pong=True)
        assert len(answer.getTopicsOfNamespaceResponse.topics) == TOPICS


async def test_where_nobody_is_closed_for_standing_who_stands_keeps_to_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "TICK_SECONDS", 3600)
    async with web_staged(**WEB_STORM) as at:
        await standing(at)
        await pass_by(at.stage, range(8))
        assert at.stage.direct.held == awake(at).held == IN_SHARE * WINDOW


@pytest.mark.threat("unread-web-lists")
async def test_a_web_client_that_reads_is_served_soon_behind_those_that_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "TICK_SECONDS", 3600)
    async with web_staged(**{**WEB_STORM, "topicListWriteMinBytesPerSecond": 1}) as at:
        await standing(at)
        reader = await slow_reader(at)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(reader.receive(LIST_BYTES))
            second = 0
            while not reading.done():
                await pass_by(at.stage, range(second, second + 1))
                second += 1
                assert at.stage.direct.held <= LIMIT_MIB * MIB * 3 // 4
        # A batch goes on every few seconds; a busy machine moves the list's bytes in several of them.
        assert second < 120
        assert at.stage.caused("reads_too_slowly")


async def test_a_share_ends_as_soon_as_its_web_client_takes_bytes() -> None:
    async with web_staged(**WEB_STORM) as at:
        (reader,) = await standing(at, 1)
        assert awake(at).held == WINDOW
        await reader.receive(600 * 1024)
        await at.stage.until(lambda: not awake(at).held, "the share free")
        assert at.stage.direct.held == WINDOW
        reader.close()
        await at.stage.until(lambda: not at.stage.direct.held, "all back")


async def list_or_nothing(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=b"[]") if request.path == ADMIN else await large_list(request)


async def served_elsewhere(at: WebStage) -> None:
    """Expect that a client of another address gets a list, while nobody of the others ends."""
    reader = await slow_reader(at, source=OTHER_ADDRESS)
    await reader.receive(LIST_BYTES)
    reader.close()


@pytest.mark.threat("web-lists-one-address")
@pytest.mark.parametrize("slots", [MANY, 16])
async def test_a_list_of_another_address_waits_for_none_that_stand(slots: int) -> None:
    # Where there are fewer slots than lists, those that wait for memory hold all that are not kept.
    async with web_staged(**{**WEB_STORM, "topicListMaxOutstandingPerBroker": slots}) as at:
        at.broker.answer = large_list
        for _ in range(MANY):
            await slow_reader(at)
        await at.stage.until(
            lambda: awake(at).held >= IN_SHARE * WINDOW and awake(at).queue_size >= min(slots * 7 // 8, 52), "a crowd"
        )
        for _ in range(2):
            await served_elsewhere(at)
        assert awake(at).held == IN_SHARE * WINDOW


@pytest.mark.threat("web-lists-one-address")
async def test_connections_that_lists_hold_keep_no_request_and_no_list_of_another_address_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_client, "MOST_CONNECTIONS_A_SERVER", 32)
    async with web_staged(**{**WEB_STORM, "maxTopicListInFlightDirectMemSizeMB": 64}) as at:
        at.broker.answer = list_or_nothing
        for _ in range(40):
            await slow_reader(at)
        # Of 32 connections 28 are for lists, and 3 of these for addresses that have none.
        await at.stage.until(
            lambda: (
                counted(at.stage.proxy.counters, "http_requests_in_work") == 40 and at.stage.direct.held >= 25 * WINDOW
            ),
            "lists of one address on all the connections that they may have",
        )
        for _ in range(2):
            await served_elsewhere(at)
        async with in_time(), at.client.get(at.url + ADMIN) as answer:
            assert await answer.read() == b"[]"
        assert at.stage.direct.held == 25 * WINDOW


async def test_who_leaves_while_it_waits_for_a_share_gives_all_back() -> None:
    async with web_staged(**WEB_STORM) as at:
        for client in await standing(at):
            client.reset()
        await at.stage.until(lambda: not (awake(at).held or awake(at).queue_size or at.stage.direct.held), "all back")
        at.broker.answer = large_list
        reader = await slow_reader(at)
        await reader.receive(LIST_BYTES)
        reader.close()
