"""Bodies of tiny chunks on real sockets: whatever is asked for with them, a PING beside waits for a few turns."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from protocol.commands import PONG_FRAME
from proxy.core.loop_budget import ITERATION_SECONDS
from tests.integration.test_known_brokers import OWN
from tests.support.auth.credentials import refused
from tests.support.auth.issuer import AUDIENCE, Issuer
from tests.support.clients.async_client import PING, AsyncClient, connect_frame
from tests.support.proxies.counted import counted_by
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.targets import refused_target
from tests.support.web.chunk_clock import CHUNK, ChunkClock
from tests.support.web.fake_web_broker import Answer, raw_web_broker, swallowed
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

CONNECTIONS = 50
# One read of a socket brings most of this.
A_FLOOD = CHUNK * 10_000
# An iteration has 2 ms, and a PING takes some iterations. In one that heard all of the flood it waited for 0.2 s.
MOST_SECONDS = 0.04


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ChunkClock:
    return ChunkClock(monkeypatch)


async def flood(at: WebStage, line: str, port: int, connections: int = CONNECTIONS) -> list[AsyncClient]:
    clients = []
    for _ in range(connections):
        client = await at.stage.client(port=port)
        clients.append(client)
        await client.send(f"{line} HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    return clients


async def neighbour_of(stage: Stage, clock: ChunkClock) -> AsyncClient:
    stage.proxy.core.loop_budget.now = lambda: clock.now
    return await stage.connected()


async def pinged(
    stage: Stage,
    clock: ChunkClock,
    neighbour: AsyncClient,
    clients: list[AsyncClient],
    act: Callable[[AsyncClient], object],
) -> None:
    """Have clients act, and a neighbour send PINGs, which are answered in time."""
    waits = []
    for _ in range(10):
        for client in clients:
            with suppress(ConnectionError, BlockingIOError):
                act(client)
        await neighbour.send(PING)
        # How late a busy kernel delivers is no turn of the proxy.
        neighbour.deliver()
        before = clock.now
        assert await neighbour.receive(len(PONG_FRAME)) == PONG_FRAME
        waits.append(clock.now - before)
    for client in clients:
        client.reset()
    assert clock.chunks > 300
    assert max(waits) <= MOST_SECONDS
    assert counted_by(stage.proxy.counters, "internal_errors") == {}


async def too_large(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=413)


@pytest.mark.threat("tiny-body-chunks")
@pytest.mark.parametrize(
    ("line", "answered"),
    [
        (f"POST {ADMIN}", swallowed),
        (f"POST {ADMIN}", too_large),
        ("POST /x", too_large),
        ("PUT /healthz", too_large),
        ("GET /metrics", too_large),
    ],
    ids=["upload", "413", "404", "405", "page"],
)
async def test_a_ping_waits_for_a_few_turns_of_tiny_chunks(line: str, answered: Answer, clock: ChunkClock) -> None:
    async with web_staged() as at:
        at.broker.answer = answered
        neighbour = await neighbour_of(at.stage, clock)
        clients = await flood(at, line, at.stage.proxy.web_port)
        # Those that were refused are not heard for ever.
        await pinged(at.stage, clock, neighbour, clients, lambda client: client.flood(A_FLOOD))


@pytest.mark.threat("tiny-answer-chunks")
async def test_a_ping_waits_for_a_few_turns_of_answers_in_tiny_chunks(clock: ChunkClock) -> None:
    over = False

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not over:
            writer.write(A_FLOOD)
            await writer.drain()
        writer.transport.abort()

    async with raw_web_broker(drip) as url, staged(brokerWebServiceURL=url) as stage:
        neighbour = await neighbour_of(stage, clock)
        clients = [await AsyncClient.open(stage.proxy.web_port) for _ in range(CONNECTIONS)]
        for client in clients:
            await client.send(f"GET {ADMIN} HTTP/1.1\r\nHost: p\r\n\r\n".encode())
        await pinged(stage, clock, neighbour, clients, lambda client: client.sock.recv(1 << 20))
        over = True


async def asks_for_brokers(url: str, clock: ChunkClock, may_answer: asyncio.Event) -> None:
    """Name a host at the port of the brokers, which only their list could have."""
    async with staged(**OWN, brokerWebServiceURL=url) as stage:
        # The proxy asks when it starts, too, and is answered from now on only.
        stage.proxy.core.loop_budget.now = lambda: clock.now
        may_answer.set()
        with clock.watched():
            assert await refused_target(stage, f"127.0.0.2:{stage.broker.port}")


async def asks_an_issuer(url: str, clock: ChunkClock, may_answer: asyncio.Event) -> None:
    issuer = Issuer()
    issuer.url = url
    keys: dict[str, Any] = {
        "openIDAllowedTokenIssuers": url,
        "openIDAllowedAudiences": AUDIENCE,
        "openIDRequireIssuersUseHttps": "false",
    }
    async with staged(authenticationEnabled="true", authenticationProviders="openid", **keys) as stage:
        stage.proxy.core.loop_budget.now = lambda: clock.now
        may_answer.set()
        client = await stage.client()
        with clock.watched():
            await client.send(connect_frame(auth_method_name="token", auth_data=issuer.token()))
            await refused(client)


@pytest.mark.threat("tiny-chunks-own-questions")
@pytest.mark.parametrize("ask", [asks_for_brokers, asks_an_issuer])
async def test_an_iteration_parses_few_of_the_chunks_that_answer_the_proxys_own_question(
    ask: Callable[[str, ChunkClock, asyncio.Event], Awaitable[None]], clock: ChunkClock
) -> None:
    may_answer = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await may_answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK * 60_000 + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with raw_web_broker(answer) as url:
        await ask(url, clock, may_answer)
    assert clock.chunks >= 60_000
    # A few turns, and one step more of the task that reads.
    assert clock.longest <= 3 * ITERATION_SECONDS
