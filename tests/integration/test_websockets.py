"""WebSockets passed through: frames both ways, ends, refusals, and who pays for a side that does not read."""

import asyncio
import time
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from tests.support.clients.async_client import AsyncClient
from tests.support.patience import in_time, patient_millis
from tests.support.proxies.counted import counted
from tests.support.web.web_stage import WebStage, web_staged

PATH = "/ws/v2/producer/persistent/t/n/topic"


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type is aiohttp.WSMsgType.TEXT and message.data == "bye":
            await socket.close(code=4321, message=b"as asked")
        else:
            await socket.send_bytes(message.data)
    return socket


async def opened(at: WebStage, early: bytes = b"") -> AsyncClient:
    """Open a WebSocket by hand, and send something before it is open."""
    client = await at.stage.client(4096, at.stage.proxy.web_port)
    head = f"GET {PATH} HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    await client.send(
        f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode() + early
    )
    assert (await client.receive(12)) == b"HTTP/1.1 101"
    return client


async def test_messages_pings_and_close_codes_pass_in_both_directions() -> None:
    async with web_staged() as at:
        at.broker.answer = echo
        headers = {"Authorization": "Bearer t", "X-Original-Principal": "admin"}
        async with at.client.ws_connect(at.url + PATH, headers=headers, max_msg_size=0) as socket:
            for size in (1, 1000, 1_000_000):
                await socket.send_bytes(b"x" * size)
                assert await socket.receive_bytes() == b"x" * size
            assert counted(at.stage.proxy.counters, "http_tunnels") == 1
            await socket.send_str("bye")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 4321
        asked = at.broker.asked[0]
        assert (asked.path, asked.header("Authorization")) == (PATH, "Bearer t")
        assert asked.header("X-Original-Principal") is None
        assert asked.header("Host") == f"127.0.0.1:{at.broker.port}"
        await at.stage.until(lambda: not counted(at.stage.proxy.counters, "http_tunnels"), "no tunnel left")


async def test_what_a_client_sends_before_its_websocket_is_open_is_not_lost() -> None:
    async with web_staged() as at:
        at.broker.answer = echo
        # A message of one byte, masked with zeros; the broker's are not masked.
        client = await opened(at, b"\x82\x81\0\0\0\0x")
        answer = b""
        while not answer.endswith(b"\r\n\r\n\x82\x01x"):
            answer += await client.receive(1)


async def test_a_client_that_is_gone_ends_its_tunnel() -> None:
    ended = asyncio.Event()

    async def watched(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await echo(request)
        finally:
            ended.set()

    async with web_staged() as at:
        at.broker.answer = watched
        client = await opened(at)
        client.reset()
        async with in_time():
            await ended.wait()
        assert at.stage.caused("client_closed") + at.stage.caused("connection_reset") == 1


async def test_a_broker_that_is_gone_ends_the_tunnel() -> None:
    async def cut(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        assert request.transport is not None
        request.transport.abort()
        return socket

    async with web_staged() as at:
        at.broker.answer = cut
        async with at.client.ws_connect(at.url + PATH) as socket:
            await socket.send_bytes(b"x")
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        assert at.stage.caused("broker_closed") + at.stage.caused("connection_reset") == 1


@pytest.mark.parametrize("messages", [0, 1])
async def test_a_silent_tunnel_ends(messages: int) -> None:
    async with web_staged(httpProxyTimeout=patient_millis(500)) as at:
        at.broker.answer = echo
        async with at.client.ws_connect(at.url + PATH) as socket:
            for _ in range(messages):
                await socket.send_bytes(b"x")
                assert (await socket.receive(20)).data == b"x"
            assert (await socket.receive(20)).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        assert at.stage.caused("idle") == 1


async def test_bytes_that_come_as_the_idle_time_ends_are_no_failure_of_the_tunnel() -> None:
    idle_millis = patient_millis(200)
    async with web_staged(httpProxyTimeout=idle_millis) as at:
        at.broker.answer = echo
        client = await opened(at)
        assert client.send_now(b"\x82\x81\0\0\0\0x") == 7
        client.deliver()
        # The proxy learns of both at once.
        held_up(1.2 * idle_millis / 1000)
        await client.rest()
        await at.stage.until(lambda: at.stage.caused("idle") == 1, "the tunnel ended as idle")


async def test_a_client_that_does_not_read_stops_the_broker() -> None:
    sent = 0

    async def flood(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        while True:
            await socket.send_bytes(b"x" * 100_000)
            sent += 100_000

    async with web_staged() as at:
        at.broker.answer = flood
        await opened(at)
        await stands_still(lambda: sent)
        # What the kernel's buffers of both connections may hold, and the windows.
        assert 0 < sent < 20_000_000


def held_up(seconds: float) -> None:
    """Keep the loop from running, as a step that takes long does."""
    time.sleep(seconds)


async def stands_still(reading: Callable[[], int]) -> None:
    """Wait until `reading` gives the same number for a while."""
    last, same = -1, 0
    async with in_time():
        while same < 50:
            await asyncio.sleep(0.005)
            now = reading()
            last, same = now, same + 1 if now == last else 0
