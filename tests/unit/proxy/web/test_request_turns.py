"""However many connections have sent requests, an iteration of the loop parses and answers a few, in turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.web.connection import HttpConnection
from proxy.web.server import PATH_BYTE_SECONDS, REQUEST_SECONDS, Site
from tests.support.loops.loops import run_on
from tests.support.web.web_parts import Running, running

CONNECTIONS = 60
PARSE_SECONDS = 0.0005
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Work:
    """A clock that goes on by `seconds` for each piece of work, and the pieces of each iteration of the loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.iterations = [0]

    def done(self) -> None:
        """Take note of a piece."""
        self.now += self.seconds
        self.iterations[-1] += 1

    def budget(self) -> LoopBudget:
        """Make a budget whose clock this is."""
        return LoopBudget(asyncio.get_running_loop(), lambda: self.now)

    async def watch(self) -> None:
        """Begin a new count in each iteration."""
        while True:
            await asyncio.sleep(0)
            self.iterations.append(0)


@asynccontextmanager
async def serving(work: Work) -> AsyncIterator[Running]:
    """Serve, and count in each iteration of the loop."""
    async with running() as at:
        watching = asyncio.get_running_loop().create_task(work.watch())
        yield at
        watching.cancel()


@asynccontextmanager
async def answering(
    monkeypatch: pytest.MonkeyPatch, seconds: float = REQUEST_SECONDS
) -> AsyncIterator[tuple[Running, Work]]:
    """Serve with a clock by which each answer takes its usual time; nobody's bytes wait to be parsed."""
    work, usual = Work(seconds), Site._logged

    async def slow(self: Site, request: object) -> object:
        work.done()
        return await usual(self, request)  # type: ignore[arg-type]

    monkeypatch.setattr(Site, "_logged", slow)
    async with serving(work) as at:
        assert at.port._sites[0] is not None
        at.port._sites[0]._loop_budget = work.budget()
        assert at.port._servers[0] is not None
        at.port._servers[0].loop_budget = None
        yield at, work


@asynccontextmanager
async def parsing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Running, Work]]:
    """Serve with a clock by which bytes take their time to be parsed."""
    work, usual = Work(PARSE_SECONDS), HttpConnection._parse

    def slow(self: HttpConnection, data: bytes) -> None:
        if data:
            work.done()
        usual(self, data)

    monkeypatch.setattr(HttpConnection, "_parse", slow)
    async with serving(work) as at:
        assert at.port._servers[0] is not None
        at.port._servers[0].loop_budget = work.budget()
        yield at, work


class Waiting:
    """A connection that was accepted while the time of an iteration is spent; `failures` are errors of its turn."""

    def __init__(self, at: Running) -> None:
        server = at.port._servers[0]
        assert server is not None
        assert server.loop_budget is not None
        self._budget = server.loop_budget
        self._budget.charge(1.0)
        self.failures: list[BaseException] = []
        server.failed = self.failures.append
        self.transport = Transport()
        self.connection = server()
        self.connection.accepted_from = "127.0.0.1"
        self.connection.connection_made(self.transport)

    def give_time(self) -> None:
        """Have time left in this iteration."""
        self._budget.charge(-1.0)

    async def turn(self) -> None:
        """Wait until the connection has had its turn."""
        self._budget.charge(10.0)
        await self._budget.client_turn("another", 0.0)

    def begun(self) -> tuple[int, list[str]]:
        """Give how many requests were parsed, and the paths of those that are not being answered yet."""
        paths = [getattr(message, "path", "") for message, _ in self.connection._messages]
        return self.connection._request_count, paths


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


@pytest.mark.threat("websocket-floods-loop")
def test_an_iteration_answers_a_few_of_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with answering(monkeypatch) as (at, work):
            answers = await asyncio.gather(*(at.raw(REQUEST * 3 + LAST) for _ in range(CONNECTIONS)))
            assert all(answer.count(b"HTTP/1.1 200 ") == 4 for answer in answers)
            assert sum(work.iterations) == 4 * CONNECTIONS
            # Those who got a turn work in the next iteration, beside a first request.
            assert max(work.iterations) <= 2 * round(ITERATION_SECONDS / REQUEST_SECONDS) + 2

    run_on(asyncio.new_event_loop, main())


@pytest.mark.threat("path-of-slashes")
def test_an_iteration_answers_fewer_requests_with_long_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    path = b"/admin/" + b"%25" * 2300
    request = LAST.replace(b"/healthz", path)
    seconds = REQUEST_SECONDS + len(path) * PATH_BYTE_SECONDS

    async def main() -> None:
        async with answering(monkeypatch, seconds) as (at, work):
            answers = await asyncio.gather(*(at.raw(request) for _ in range(CONNECTIONS)))
            assert all(answer.startswith(b"HTTP/1.1 404 ") for answer in answers)
            assert sum(work.iterations) == CONNECTIONS
            assert max(work.iterations) <= 2 * round(ITERATION_SECONDS / seconds) + 2

    run_on(asyncio.new_event_loop, main())


@pytest.mark.threat("websocket-floods-loop")
def test_an_iteration_parses_the_requests_of_a_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with parsing(monkeypatch) as (at, work):
            streams = [await asyncio.open_connection("127.0.0.1", at.port.port) for _ in range(CONNECTIONS)]
            for _, writer in streams:
                writer.write(REQUEST * 3 + LAST)
            for reader, writer in streams:
                assert (await reader.read()).count(b"HTTP/1.1 200 ") == 4
                writer.close()
            assert sum(work.iterations) >= CONNECTIONS
            # The read that finds the time spent leaves its bytes to a turn.
            assert max(work.iterations) <= round(ITERATION_SECONDS / PARSE_SECONDS) + 1

    run_on(asyncio.new_event_loop, main())


@pytest.mark.threat("websocket-floods-loop")
def test_bytes_that_wait_for_a_turn_keep_their_order_and_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with parsing(monkeypatch) as (at, work):
            waiting = Waiting(at)
            for part in (b"GET /a HTTP/1.1\r\nHo", b"st: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n", b"\r\n"):
                # A read that was under way when the socket was paused may still come.
                waiting.connection.data_received(part)
                assert waiting.transport.paused
                assert waiting.begun() == (0, [])
                # With time left the next part waits behind the first all the same.
                waiting.give_time()
            await waiting.turn()
            # One turn for all of them; the first is being answered, and no third is read.
            assert (sum(work.iterations), waiting.begun()) == (1, (2, ["/b"]))
            assert (waiting.transport.paused, waiting.failures) == (True, [])
            waiting.connection.connection_lost(None)

    run_on(asyncio.new_event_loop, main())


def test_a_connection_that_ends_while_its_bytes_wait_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with parsing(monkeypatch) as (at, work):
            waiting = Waiting(at)
            waiting.connection.data_received(REQUEST)
            waiting.connection.connection_lost(None)
            # Behind a crowd its turn may come late.
            assert waiting.connection._held == b""
            await waiting.turn()
            assert (sum(work.iterations), waiting.failures) == (0, [])

    run_on(asyncio.new_event_loop, main())
