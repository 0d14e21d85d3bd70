"""However many connections have sent requests, an iteration of the loop parses and answers a few, in turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.web.server import REQUEST_SECONDS, HttpConnection, Site
from tests.support.loops.loops import run_on
from tests.support.web.web_parts import Running, running

CONNECTIONS = 60
PARSE_SECONDS = 0.0005
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def counted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Running, list[int]]]:
    """Serve with a clock by which each answer takes its usual time; give the answers of each iteration of the loop."""
    now, iterations = 0.0, [0]
    usual = Site._logged

    async def slow(self: Site, request: object) -> object:
        nonlocal now
        now += REQUEST_SECONDS
        iterations[-1] += 1
        return await usual(self, request)  # type: ignore[arg-type]

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            iterations.append(0)

    monkeypatch.setattr(Site, "_logged", slow)
    async with running() as at:
        assert at.port._site is not None
        at.port._site._loop_budget = LoopBudget(asyncio.get_running_loop(), lambda: now)
        assert at.port._server is not None
        at.port._server.loop_budget = None
        watching = asyncio.get_running_loop().create_task(watch())
        yield at, iterations
        watching.cancel()


def test_an_iteration_answers_a_few_of_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with counted(monkeypatch) as (at, iterations):
            answers = await asyncio.gather(*(at.raw(REQUEST * 3 + LAST) for _ in range(CONNECTIONS)))
            assert all(answer.count(b"HTTP/1.1 200 ") == 4 for answer in answers)
            assert sum(iterations) == 4 * CONNECTIONS
            # Those who got a turn work in the next iteration, beside a first request.
            assert max(iterations) <= 2 * round(ITERATION_SECONDS / REQUEST_SECONDS) + 2

    run_on(asyncio.new_event_loop, main())


@asynccontextmanager
async def parsing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Running, list[int]]]:
    """Serve with a clock by which bytes take their time to be parsed; give how often each iteration parsed some."""
    now, iterations = 0.0, [0]
    usual = HttpConnection._parse

    def slow(self: HttpConnection, data: bytes) -> None:
        nonlocal now
        if data:
            now += PARSE_SECONDS
            iterations[-1] += 1
        usual(self, data)

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            iterations.append(0)

    monkeypatch.setattr(HttpConnection, "_parse", slow)
    async with running() as at:
        assert at.port._server is not None
        at.port._server.loop_budget = LoopBudget(asyncio.get_running_loop(), lambda: now)
        watching = asyncio.get_running_loop().create_task(watch())
        yield at, iterations
        watching.cancel()


def test_an_iteration_parses_the_requests_of_a_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with parsing(monkeypatch) as (at, iterations):
            streams = [await asyncio.open_connection("127.0.0.1", at.port.port) for _ in range(CONNECTIONS)]
            for _, writer in streams:
                writer.write(REQUEST * 3 + LAST)
            for reader, writer in streams:
                assert (await reader.read()).count(b"HTTP/1.1 200 ") == 4
                writer.close()
            assert sum(iterations) >= CONNECTIONS
            # The read that finds the time spent leaves its bytes to a turn.
            assert max(iterations) <= round(ITERATION_SECONDS / PARSE_SECONDS) + 1

    run_on(asyncio.new_event_loop, main())


def test_bytes_that_wait_for_a_turn_keep_their_order_and_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with parsing(monkeypatch) as (at, _):
            server = at.port._server
            assert server is not None
            assert server.loop_budget is not None
            server.loop_budget.charge(1.0)
            connection = server()
            connection.accepted_from = "127.0.0.1"
            transport = Transport()
            connection.connection_made(transport)
            for part in (b"GET /a HTTP/1.1\r\nHo", b"st: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n", b"\r\n"):
                connection.data_received(part)
                assert transport.paused
                assert not connection._messages
            await server.loop_budget.client_turn("another", 0.0)
            assert not connection._waits
            assert not transport.paused
            # The first is being answered.
            assert (
                connection._request_count,
                [getattr(message, "path", "") for message, _ in connection._messages],
            ) == (2, ["/b"])
            connection.connection_lost(None)

    run_on(asyncio.new_event_loop, main())


def test_a_connection_that_ends_while_its_bytes_wait_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with parsing(monkeypatch) as (at, iterations):
            server = at.port._server
            assert server is not None
            assert server.loop_budget is not None
            server.loop_budget.charge(1.0)
            connection = server()
            connection.accepted_from = "127.0.0.1"
            connection.connection_made(Transport())
            connection.data_received(REQUEST)
            connection.connection_lost(None)
            await server.loop_budget.client_turn("another", 0.0)
            assert not connection._waits
            assert (connection._held, sum(iterations)) == (b"", 0)

    run_on(asyncio.new_event_loop, main())


class Transport(asyncio.Transport):
    """A socket that says whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        """Take what is answered."""

    def close(self) -> None:
        """Do nothing."""
