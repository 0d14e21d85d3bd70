"""Answers in tiny chunks to the proxy's own questions over HTTP are parsed a few chunks in an iteration of the loop."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.app.sockets import Sockets
from proxy.auth.identity import AuthData
from proxy.auth.own.broker_credentials import Plain
from proxy.auth.providers.issuer_client import IssuerClient, IssuerFault
from proxy.auth.settings import IssuerAccess
from proxy.brokers.broker_list import ListUnavailable
from proxy.brokers.list_question import ListQuestion
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.overload.broker_questions import BrokerQuestions
from proxy.overload.broker_statistics import StatisticsUnavailable
from tests.support.web.chunk_clock import CHUNK, ChunkClock

OWN = Plain(lambda: AuthData("token", b"own"))
CHUNKS = 60_000
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# A few turns, and one step more of the task that reads.
MOST_SECONDS = 3 * ITERATION_SECONDS


async def statistics(url: str, load: Callable[[], Any]) -> None:
    with pytest.raises(StatisticsUnavailable):
        await BrokerQuestions((url,), OWN, None, load).backlog("persistent://t/n/topic")


async def brokers(url: str, load: Callable[[], Any]) -> None:
    with pytest.raises(ListUnavailable):
        await ListQuestion((url,), "", OWN, None, load).ask()


async def keys(url: str, _: Callable[[], Any]) -> None:
    with pytest.raises(IssuerFault):
        await IssuerClient(IssuerAccess()).fetch(url)


@pytest.mark.threat("tiny-chunks-own-questions")
@pytest.mark.parametrize("ask", [statistics, brokers, keys])
async def test_an_iteration_parses_few_of_the_chunks_of_an_answer(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ChunkClock(monkeypatch)
    sockets: Any = SimpleNamespace(loop_budget=clock.budget())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + CHUNK * CHUNKS + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        with clock.watched():
            await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lambda: Sockets.load_connector(sockets))
    assert clock.chunks >= CHUNKS
    assert clock.longest <= MOST_SECONDS
