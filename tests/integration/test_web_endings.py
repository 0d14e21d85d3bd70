"""What a web broker or a client that does nothing may keep of this proxy: no socket, no connection of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from proxy.web.forward import broker_client
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.sockets.descriptors import targets
from tests.support.web.fake_web_broker import raw_web_broker, swallowed
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

WEBSOCKET = (
    b"GET /ws/v2/producer/persistent/t/n/x HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
UPLOAD = f"PUT {ADMIN} HTTP/1.1\r\nHost: p\r\nContent-Length: 100000000\r\n\r\n".encode()
CONSENT = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


@asynccontextmanager
async def deaf_broker(consent: bytes) -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """Serve what is never read behind its first header; gives its URL and the connections it holds."""
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        # A full reader has stopped its transport by itself.
        writer.write(consent)
        held.append(writer)

    async with raw_web_broker(serve, limit=1024) as url:
        yield url, held


async def pushed_until_it_stalls(stage: Stage, opening: bytes) -> AsyncClient:
    client = await AsyncClient.open(stage.proxy.web_port)
    await client.send(opening)
    stalled = 0
    while stalled < 40:
        stalled = 0 if client.send_now(bytes(65536)) else stalled + 1
        await asyncio.sleep(0.005)
    return client


def sockets() -> set[str]:
    """Give the sockets of this process; a file that is open for a moment does not count."""
    return {target for target in targets() if target.startswith("socket:")}


@pytest.mark.parametrize(("opening", "consent"), [(WEBSOCKET, CONSENT), (UPLOAD, b"")])
async def test_no_socket_stays_open_to_a_broker_that_does_not_read_when_its_client_has_left(
    opening: bytes, consent: bytes
) -> None:
    async with deaf_broker(consent) as (url, held), staged(brokerWebServiceURL=url) as stage:
        before = sockets()
        client = await pushed_until_it_stalls(stage, opening)
        await stage.until(lambda: len(held) == 1, "the request at the broker")
        await stage.until(lambda: len(sockets() - before) == 4, "both ends of both connections")
        client.reset()
        # The broker's own end is left.
        await stage.until(lambda: len(sockets() - before) == 1, "the sockets to be closed")
        held[0].transport.abort()


async def uploading(at: WebStage) -> AsyncClient:
    at.broker.answer = swallowed
    client = await at.stage.client(port=at.stage.proxy.web_port)
    await client.send(UPLOAD + b"x")
    await at.stage.until(lambda: at.broker.asked, "the upload at the broker")
    return client


@pytest.mark.threat("curious-stranger")
async def test_a_client_without_a_connection_to_the_broker_is_told_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_client, "MOST_CONNECTIONS_A_SERVER", 1)
    monkeypatch.setattr(broker_client, "WAIT_SECONDS", 0.01)
    async with web_staged() as at:
        client = await uploading(at)
        answer = await at.ask()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        reason = answer.text
        assert "all connections to the server" in reason
        # It learns no address.
        assert not any(sign.isdigit() for sign in reason)
        client.reset()
        await at.stage.until(lambda: not counted(at.stage.proxy.counters, "http_requests_in_work"), "the upload's end")
        assert (await at.ask()).status == 204


async def test_an_upload_of_which_nothing_comes_is_ended() -> None:
    async with web_staged(topicListWriteStallTimeoutMillis=patient_millis(500)) as at:
        client = await uploading(at)
        found = await client.rest()
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b"topicListWriteStallTimeoutMillis" in found


async def test_a_value_that_is_no_utf8_does_not_reach_the_broker_as_another() -> None:
    async with web_staged() as at:
        request = f"GET {ADMIN} HTTP/1.1\r\nHost: p\r\nConnection: close\r\nX-A: ".encode() + b"\xff\xfe\r\n\r\n"
        assert (await at.raw(request)).startswith(b"HTTP/1.1 400 ")
        assert at.broker.asked == []


@pytest.mark.threat("bytes-behind-answer")
async def test_an_answer_too_many_is_nobodys_answer() -> None:
    held: list[asyncio.StreamWriter] = []

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        while path := (await reader.readuntil(b"\r\n\r\n")).split()[1]:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async with (
        raw_web_broker(repeat) as url, staged(brokerWebServiceURL=url) as stage, aiohttp.ClientSession() as client
    ):  # fmt: skip
        used = []
        for number in range(5):
            path = f"/admin/v2/own{number}"
            async with client.get(f"http://127.0.0.1:{stage.proxy.web_port}{path}") as answer:
                assert await answer.text() == path
            used.append(held[-1])
            # Behind an answer, and before the next question: the kernel has it, whether the proxy has read it or not.
            held[-1].write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign")
            AsyncClient(held[-1].get_extra_info("socket")).deliver()
        assert len(set(used)) == 5
