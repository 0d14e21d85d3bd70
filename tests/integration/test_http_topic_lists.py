"""Topic lists asked for over HTTP: the memory they hold, who waits, who is refused, who is ended."""

import asyncio
import socket
from typing import Final

import pytest
from aiohttp import web

from proxy.core.errors import DIRECT_REFUSAL
from tests.support.clients.async_client import AsyncClient
from tests.support.web.web_stage import WebStage, web_staged

LISTS: Final = "/admin/v2/namespaces/demo/ns/topics?mode=ALL"
BUFFER: Final = 4096
WINDOW: Final = 4 * BUFFER
DIRECT: Final = "maxTopicListInFlightDirectMemSize{}"
SMALL: Final = {"httpOutputBufferSize": BUFFER, "topicListWriteStallTimeoutMillis": 0}


async def large_list(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for _ in range(2000):
        await response.write(b'"persistent://demo/ns/topic",' * 40)
    return response


async def slow_reader(at: WebStage, path: str = LISTS) -> AsyncClient:
    """Ask for a list and read nothing of it."""
    client = await AsyncClient.open(at.stage.proxy.web_port, rcvbuf=4096)
    at.stage.clients.append(client)
    await client.send(f"GET {path} HTTP/1.1\r\nHost: p\r\n\r\n".encode())
    return client


async def all_of(client: AsyncClient) -> None:
    while await asyncio.get_running_loop().sock_recv(client.sock, 65536):
        pass


@pytest.mark.parametrize(
    "path",
    [
        LISTS,
        "/admin/v2/persistent/demo/ns",
        "/admin/v2/non-persistent/demo/ns",
        "/admin/v2/persistent/demo/ns/partitioned",
        "/admin/persistent/prop/cluster/ns",
        "/admin/namespaces/prop/cluster/ns/destinations",
        "/admin/v2/namespaces/demo/ns/%74opics",
        "/admin/v2/namespaces/demo//ns/topics;x=y",
    ],
)
async def test_a_list_holds_its_window_from_first_to_last_byte(path: str) -> None:
    async with web_staged(**SMALL) as at:
        at.broker.answer = large_list
        reader = await slow_reader(at, path)
        await at.stage.until(lambda: at.stage.direct.held == WINDOW, "the window of one list")
        await at.stage.until(lambda: at.broker.asked, "the question")
        got = bytearray()
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += await asyncio.get_running_loop().sock_recv(reader.sock, 65536)
        assert got.startswith(b"HTTP/1.1 200 ")
        await at.stage.until(lambda: not at.stage.direct.held, "nothing held")
        usage = at.stage.proxy.usage.top(1).namespaces[0]
        assert usage.sent_bytes > 2_000_000
        assert usage.byte_seconds > 0


@pytest.mark.parametrize("path", ["/admin/v2/clusters", "/admin/v2/persistent/demo/ns/topic/stats"])
async def test_other_answers_hold_none(path: str) -> None:
    async with web_staged(**SMALL) as at:
        async with at.client.get(at.url + path) as answer:
            assert answer.status == 200
        assert at.stage.direct.statistics().peak_held == 0


async def full(at: WebStage) -> None:
    """Have one list hold nearly all direct memory."""
    at.broker.answer = large_list
    await slow_reader(at)
    await at.stage.until(lambda: at.stage.direct.held and at.broker.asked, "a list under way")


LARGE_WINDOW: Final = {"httpOutputBufferSize": 200_000, DIRECT.format("MB"): 1, "topicListWriteStallTimeoutMillis": 0}


async def test_a_list_without_memory_in_time_is_refused_like_one_of_the_binary_port() -> None:
    async with web_staged(**LARGE_WINDOW) as at:
        await full(at)
        at.stage.change(**{DIRECT.format("PermitsAcquireTimeoutMillis"): 50})
        questions = len(at.broker.asked)
        async with at.client.get(at.url + LISTS) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
            assert (await answer.json())["reason"] == DIRECT_REFUSAL
        # The broker was not even asked.
        assert len(at.broker.asked) == questions
        refusal = at.stage.proxy.refusals.recent[-1]
        assert (refusal.stage, refusal.limiter, refusal.subject) == ("direct", "direct", "demo/ns")
        assert refusal.change == "maxTopicListInFlightDirectMemSizeMB"
        assert refusal.top_holders[0][1] == 800_000
        assert at.stage.proxy.counters.web.lists_refused == 1


async def test_a_list_stands_in_the_same_queue_as_those_of_the_binary_port() -> None:
    keys = LARGE_WINDOW | {DIRECT.format("PermitsAcquireQueueSize"): 1}
    async with web_staged(**keys) as at:
        await full(at)
        waiting = await slow_reader(at)
        await at.stage.until(lambda: at.stage.direct.queue_size == 1, "one in the queue")
        client = await at.stage.connected()
        assert (await client.refused_topics("demo/ns-00")).message == DIRECT_REFUSAL
        waiting.close()
        await at.stage.until(lambda: not at.stage.direct.queue_size, "its place is free")


async def test_a_client_that_stops_reading_a_list_is_ended_by_the_same_rule() -> None:
    async with web_staged(**SMALL | {"topicListWriteStallTimeoutMillis": 200}) as at:
        at.broker.answer = large_list
        reader = await slow_reader(at)
        await at.stage.until(lambda: at.stage.caused("write_stalled"), "the end of who does not read")
        await at.stage.until(lambda: not at.stage.direct.held, "its memory is free")
        with pytest.raises(ConnectionResetError):
            await all_of(reader)


async def test_many_lists_at_once_are_served_in_turn() -> None:
    async def short_list(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b'["a"]')

    async with web_staged(**LARGE_WINDOW) as at:
        at.broker.answer = short_list

        async def one() -> int:
            async with at.client.get(at.url + LISTS) as answer:
                await answer.read()
                return answer.status

        assert await asyncio.gather(*(one() for _ in range(100))) == [200] * 100
        assert at.stage.direct.statistics().peak_held == 800_000
        assert at.stage.direct.queue_size == 0


def test_the_kernel_inherits_small_buffers() -> None:
    # What `HttpListener.open` relies on.
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 8192
