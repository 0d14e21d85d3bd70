"""However many tiny chunks a body has, an iteration of the loop parses and reads a few of them.

The clock of these tests goes on by what chunks cost, so nothing depends on the machine.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import StreamReader, web

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.write_watch import WriteLimits
from proxy.web.connection import READ_AHEAD_BYTES, HttpConnection, HttpServer
from proxy.web.forward.bodies import STEP_SECONDS, RequestBody
from proxy.web.forward.broker_client import BrokerAnswers
from proxy.web.forward.settings import METRICS_CONNECTIONS
from proxy.web.forward.uploads import Upload
from proxy.web.http.pieces import FEW_LINES, PIECE_BYTES, SMALL_PIECE_BYTES
from tests.support.loops.loops import run_on, run_virtual
from tests.support.web.chunk_clock import CHUNK, ChunkClock
from tests.support.web.fake_socket import Socket
from tests.support.web.web_parts import Running, running

CONNECTIONS = 50
# What one read of a socket brings.
A_READ = CHUNK * 8192
HEAD = b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
# A few turns, and one step more of each task that had one.
MOST_SECONDS = 3 * ITERATION_SECONDS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ChunkClock:
    return ChunkClock(monkeypatch)


@asynccontextmanager
async def serving(clock: ChunkClock) -> AsyncIterator[Running]:
    """Serve, with the clock of chunks."""
    async with running(metricsPort="0") as at:
        budget = clock.budget()
        for site, server in zip(at.port._sites, at.port._servers, strict=True):
            site._loop_budget = server.loop_budget = budget
        with clock.watched():
            yield at


@pytest.mark.threat("tiny-body-chunks")
@pytest.mark.parametrize("port", ["web", "metrics"])
@pytest.mark.parametrize(("line", "status"), [(b"POST /x", 404), (b"PUT /metrics", 405), (b"GET /healthz", 200)])
def test_an_iteration_parses_few_of_the_chunks_that_nobody_wants(
    port: str, line: bytes, status: int, clock: ChunkClock
) -> None:
    async def main() -> None:
        async with serving(clock) as at:
            where = at.port.port if port == "web" else at.port.metrics_port
            number = CONNECTIONS if port == "web" else METRICS_CONNECTIONS
            streams = [await asyncio.open_connection("127.0.0.1", where) for _ in range(number)]
            for _, writer in streams:
                writer.write(line + HEAD + A_READ + END)
            for reader, _ in streams:
                assert (await reader.readuntil(b"\r\n")).split()[1] == b"%d" % status
            for _, writer in streams:
                writer.close()
            await asyncio.sleep(0)
            assert clock.chunks > 0
            assert clock.longest <= MOST_SECONDS

    run_on(asyncio.new_event_loop, main())


@pytest.mark.threat("tiny-body-chunks")
def test_what_comes_after_an_answer_that_ends_the_connection_is_dropped(clock: ChunkClock) -> None:
    async def main() -> None:
        async with serving(clock) as at:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port.port)
            writer.write(b"POST /x" + HEAD + CHUNK)
            assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
            before = clock.chunks
            writer.write(A_READ * 3)
            # The proxy waits for the end of the body in vain, for the time of its lingering.
            await reader.read()
            writer.close()
            assert clock.chunks == before

    run_on(asyncio.new_event_loop, main())


def test_an_honest_rest_of_a_refused_body_ends_the_connection_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.web.server.LINGERING_SECONDS", 600.0)

    async def main() -> None:
        async with running() as at:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port.port)
            writer.write(b"POST /x" + HEAD + CHUNK)
            assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"186a0\r\n" + random.Random(1).randbytes(100_000) + b"\r\n" + END)
            await reader.read()
            writer.close()

    run_on(asyncio.new_event_loop, main())


# --- uploads --------------------------------------------------------------------------------------


class Writer:
    """A broker that takes everything at once."""

    def __init__(self) -> None:
        self.taken = b""

    def send_headers(self) -> None:
        """Do nothing."""

    async def write(self, piece: bytes) -> None:
        self.taken += piece

    async def drain(self) -> None:
        """Take all."""


async def not_served(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise NotImplementedError


def connected(
    budget: LoopBudget | None, answer: Callable[[web.BaseRequest], Any] = not_served
) -> tuple[HttpConnection, Socket]:
    keys: dict[str, Any] = {"access_log": None, "auto_decompress": False, "tcp_keepalive": False}
    server = HttpServer(answer, **keys, read_bufsize=READ_AHEAD_BYTES)
    server.loop_budget, server.longest_header = budget, 8192
    connection, socket = server(), Socket()
    connection.accepted_from = "10.0.0.1"
    connection.connection_made(socket)
    return connection, socket


def body_of(connection: HttpConnection, budget: LoopBudget) -> RequestBody:
    counters: Any = SimpleNamespace(bytes_to_brokers=0)
    copy: Any = SimpleNamespace(keep=len, whole=False)
    asked: Any = SimpleNamespace(headers={}, content=connection._messages[-1][1])
    upload = Upload(lambda: WriteLimits(0.0, 0))
    return RequestBody(asked, copy, counters, upload, 32_768, lambda: budget.client_turn("key", STEP_SECONDS))


@pytest.mark.threat("tiny-body-chunks")
async def test_uploads_of_tiny_chunks_that_wait_are_read_a_few_in_an_iteration(clock: ChunkClock) -> None:
    budget, loop = clock.budget(), asyncio.get_running_loop()
    connections = [connected(budget)[0] for _ in range(CONNECTIONS)]
    for connection in connections:
        connection._parse(b"POST /x" + HEAD + CHUNK * 300)
    writers = [Writer() for _ in connections]
    bodies = [body_of(connection, budget) for connection in connections]
    with clock.watched():
        tasks = [loop.create_task(body.send(writer)) for body, writer in zip(bodies, writers, strict=True)]  # type: ignore[arg-type]
        for _ in range(1000):
            await asyncio.sleep(0)
            if all(len(writer.taken) == 300 for writer in writers):
                break
    assert clock.longest <= MOST_SECONDS
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.threat("tiny-body-chunks")
def test_the_rests_of_bodies_that_nobody_wanted_are_read_a_few_in_an_iteration(clock: ChunkClock) -> None:
    async def main() -> None:
        budget, decided = clock.budget(), asyncio.Event()

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            await decided.wait()
            return web.Response()

        connections = [connected(budget, answer)[0] for _ in range(CONNECTIONS)]
        await asyncio.sleep(0)
        bodies = []
        for connection in connections:
            connection._parse(b"POST /x" + HEAD + CHUNK * 400 + END)
            bodies.append(connection._messages[0][1])
        await asyncio.sleep(0)
        with clock.watched():
            decided.set()
            for _ in range(1000):
                await asyncio.sleep(0)
        assert all(body.is_eof() for body in bodies)
        assert clock.longest <= MOST_SECONDS
        for connection in connections:
            connection.connection_lost(None)

    run_virtual(main())


@pytest.mark.threat("tiny-body-chunks")
def test_an_upgrade_that_was_parsed_in_a_turn_and_declined_leaves_the_socket_read() -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="x")

    async def main() -> None:
        budget = LoopBudget(asyncio.get_running_loop(), lambda: 1.0)
        connection, socket = connected(budget, answer)
        budget.charge(1.0)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert (socket.paused, connection._waits) == (True, True)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (socket.written.count(b"HTTP/1.1 200 "), socket.paused) == (1, False)
        connection.connection_lost(None)

    run_virtual(main())


# --- what a connection makes of bytes -------------------------------------------------------------


def requests(chance: random.Random) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Make pipelined requests: their bytes, and what has to be made of them."""
    sent, expected = b"", []
    for number in range(chance.randint(1, 8)):
        most = chance.choice((2, 70, 5000))
        chunks = [chance.randbytes(chance.choice((1, 1, most))) for _ in range(chance.choice((0, 3, 100, 2000)))]
        body = b"".join(chunks)
        kind = chance.randrange(3)
        if kind == 0:
            framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + END
            sent += b"POST /%d" % number + HEAD + framed
        elif kind == 1:
            body = body.replace(b"\x00", b"\n")
            sent += b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (number, len(body)) + body
        else:
            body = b""
            upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n" if chance.random() < 0.3 else b""
            sent += b"GET http://x/%d HTTP/1.1\r\nHost: x\r\n%b\r\n" % (number, upgrade)
        expected.append((f"/{number}", body))
    return sent, expected


@pytest.mark.threat("tiny-body-chunks")
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("reads", [True, False])
def test_however_bytes_come_and_turns_are_given_requests_are_what_was_sent(seed: int, reads: bool) -> None:
    chance = random.Random(seed)
    sent, expected = requests(chance)
    found: list[tuple[str, bytes]] = []
    step = 32_768 if len(sent) > 9999 else chance.choice((1, 100, 32_768))

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = b""
        while reads and (piece := await request.content.read(step)):
            body += piece
        found.append((request.path, body))
        return web.Response(text="x")

    async def main() -> None:
        budget = LoopBudget(asyncio.get_running_loop(), lambda: chance.choice((0.0, 1.0)) if seed % 4 else 0.0)
        connection, socket = connected(budget if seed % 5 else None, answer)
        left = sent
        for _ in range(100_000):
            await asyncio.sleep(0)
            if left and not socket.paused:
                size = chance.choice((1, 3, 500, 5000, 50_000))
                piece, left = left[:size], left[size:]
                connection.data_received(piece)
            if len(found) == len(expected):
                break
        assert [path for path, _ in found] == [path for path, _ in expected]
        assert not reads or found == expected
        assert len(connection._held) <= 50_000 + PIECE_BYTES
        for _ in range(100):
            await asyncio.sleep(0)
        # All that was sent has been answered, and the socket is read on.
        assert (socket.written.count(b"HTTP/1.1 200 "), socket.paused) == (len(expected), False)
        connection.connection_lost(None)

    run_virtual(main())


def test_a_body_that_ends_where_its_parser_would_stop_leaves_the_socket_read() -> None:
    async def main() -> None:
        connection, socket = connected(LoopBudget(asyncio.get_running_loop(), lambda: 0.0))
        await asyncio.sleep(0)
        connection.data_received(b"POST /a" + HEAD)
        await asyncio.sleep(0)
        full = CHUNK * (READ_AHEAD_BYTES // 16 + 1) + END
        connection.data_received(full)
        assert (len(connection._messages), connection._held, socket.paused) == (0, b"", False)
        connection.data_received(b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        assert len(connection._messages) == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection.connection_lost(None)

    run_virtual(main())


class Tunnel:
    """Takes the bytes of a WebSocket."""

    def __init__(self) -> None:
        self.taken = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.taken += data
        return False, b""

    def feed_eof(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("spent", [False, True])
def test_a_websocket_gets_what_its_client_has_sent_before_it_was_open(spent: bool) -> None:
    early = random.Random(7).randbytes(40_000)

    async def main() -> None:
        tunnel, decided = Tunnel(), asyncio.Event()

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            await decided.wait()
            request.protocol.set_parser(tunnel)  # type: ignore[arg-type]
            return await not_served(request)

        budget = LoopBudget(asyncio.get_running_loop(), lambda: 1.0)
        connection, socket = connected(budget, answer)
        if spent:
            budget.charge(1.0)
        opening = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        connection.data_received(opening + early[:20_000])
        for _ in range(10):
            await asyncio.sleep(0)
        # Nobody has decided yet, so no more is read.
        assert (socket.paused, tunnel.taken) == (True, b"")
        connection.data_received(early[20_000:])
        decided.set()
        for _ in range(10):
            await asyncio.sleep(0)
        connection.data_received(b"later")
        assert (socket.paused, tunnel.taken) == (False, early + b"later")
        connection.connection_lost(None)

    run_virtual(main())


def test_no_line_break_but_both_signs_makes_a_chunk() -> None:
    """Lines are what pieces are measured by."""

    async def main() -> None:
        for framed in (b"1\nX\n", b"1\rX\r", b"1;a\nX\r\n"):
            connection, _ = connected(None)
            await asyncio.sleep(0)
            connection.data_received(b"POST /x" + HEAD + framed * (FEW_LINES + 1))
            body: StreamReader = connection._messages[0][1]
            assert body.total_bytes <= 1
            # The answer to what is no request.
            for _ in range(5):
                await asyncio.sleep(0)
            connection.connection_lost(None)

    run_virtual(main())


# --- answers of brokers ---------------------------------------------------------------------------

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def asked(budget: LoopBudget) -> tuple[BrokerAnswers, Socket]:
    connection, socket = BrokerAnswers(asyncio.get_running_loop(), budget), Socket()
    connection.connection_made(socket)
    connection.set_response_params(read_bufsize=16_384, auto_decompress=False)
    return connection, socket


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("not within so many iterations")


@pytest.mark.threat("tiny-answer-chunks")
async def test_answers_of_tiny_chunks_are_parsed_and_read_a_few_in_an_iteration(clock: ChunkClock) -> None:
    budget, loop = clock.budget(), asyncio.get_running_loop()
    connections = [asked(budget) for _ in range(CONNECTIONS)]
    taken = [0] * CONNECTIONS

    async def take(number: int, connection: BrokerAnswers) -> None:
        _, body = await connection.read()
        while piece := await body.read(32_768):
            taken[number] += len(piece)
            await budget.client_turn("key", STEP_SECONDS)

    with clock.watched():
        tasks = [loop.create_task(take(number, each)) for number, (each, _) in enumerate(connections)]
        for connection, _ in connections:
            connection.data_received(ANSWER + A_READ + END)
        await asyncio.wait(tasks)
    assert taken == [8192] * CONNECTIONS
    assert clock.longest <= MOST_SECONDS
    assert not any(socket.paused or connection.should_close for connection, socket in connections)
    assert len(budget) == 0


async def test_an_answer_that_nobody_reads_is_not_parsed_on_and_its_socket_not_read(clock: ChunkClock) -> None:
    connection, socket = asked(clock.budget())
    connection.data_received(ANSWER + A_READ)
    for _ in range(200):
        await asyncio.sleep(0)
    assert socket.paused
    assert connection.should_close
    assert clock.chunks <= 16_384 // 16 + FEW_LINES
    _, body = await connection.read()
    size = 0
    while size < 8192:
        size += len(await body.read(32_768))
    await asyncio.sleep(0)
    assert not socket.paused


async def test_bytes_behind_an_answer_keep_its_connection_from_the_next_request(clock: ChunkClock) -> None:
    connection, _ = asked(clock.budget())
    connection.data_received(ANSWER + CHUNK)
    _, body = await connection.read()
    closes: list[bool] = []
    body.on_eof(lambda: closes.append(connection.should_close))
    last = CHUNK * 339 + b"4\r\nabcd\r\n" + END
    assert len(last) == SMALL_PIECE_BYTES
    # As many lines as make the pieces small, so that the next begins with what belongs to no answer.
    connection.data_received(last + CHUNK * 500)
    assert closes == [True]


@pytest.mark.parametrize("seed", range(10))
async def test_however_bytes_of_an_answer_come_its_body_is_what_was_sent(seed: int, clock: ChunkClock) -> None:
    draw, sent = random.Random(seed), b""
    data = bytearray(ANSWER)
    for _ in range(200):
        chunk = draw.randbytes(draw.choice((1, 1, 1, 100, 5000)))
        data += b"%x\r\n%b\r\n" % (len(chunk), chunk)
        sent += chunk
    data += END
    budget, got = clock.budget(), b""
    connection, socket = asked(budget)

    async def come() -> None:
        while data:
            await until(lambda: not socket.paused)
            if draw.random() < 0.3:
                budget.spent()
                clock.now += 2 * ITERATION_SECONDS
            size = draw.choice((1, 50, 10_000, 65_536))
            connection.data_received(bytes(data[:size]))
            del data[:size]
            await asyncio.sleep(0)

    coming = asyncio.get_running_loop().create_task(come())
    _, body = await connection.read()
    while piece := await body.read(draw.choice((1000, 32_768))):
        got += piece
    await coming
    assert got == sent
    assert not connection.should_close


async def test_a_connection_that_is_closed_forgets_what_it_has_read(clock: ChunkClock) -> None:
    budget = clock.budget()
    connection, socket = asked(budget)
    budget.spent()
    clock.now += 2 * ITERATION_SECONDS
    connection.data_received(ANSWER + CHUNK)
    assert socket.paused
    connection.connection_lost(None)
    await until(lambda: not len(budget))
    assert clock.chunks == 0
