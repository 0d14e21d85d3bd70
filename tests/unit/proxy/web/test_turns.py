"""However many requests and tiny chunks come, an iteration of the loop parses, answers and reads a few of them.

The clocks of these tests go on by what the work costs, so nothing depends on the machine. A PING beside such floods:
test_chunked_floods.py.
"""

import asyncio
import random
from functools import partial

import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from proxy.auth.identity import AuthData
from proxy.auth.own.broker_credentials import Plain
from proxy.brokers.admin_port import AdminPort, AdminUnavailable
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.overload.broker_questions import BrokerQuestions
from proxy.web.forward.broker_client import BrokerAnswers, connector_of_one
from proxy.web.http.pieces import FEW_LINES
from tests.support.clients.async_client import eventually
from tests.support.loops.loops import most_in_an_iteration, run_on, run_virtual
from tests.support.patience import patient
from tests.support.web.chunk_clock import CHUNK, ChunkClock
from tests.support.web.fake_socket import Socket, http_server, opened
from tests.support.web.web_parts import running

CONNECTIONS = 60
PARSE_SECONDS = 0.0005
# What one read of a socket brings.
A_READ = CHUNK * 8192
HEAD = b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
OWN = Plain(lambda: AuthData("token", b"own"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ChunkClock:
    return ChunkClock(monkeypatch)


async def not_served(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise NotImplementedError


async def served(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="x")


def spent_budget() -> LoopBudget:
    budget = LoopBudget(asyncio.get_running_loop(), lambda: 1.0)
    budget.charge(1.0)
    return budget


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.threat("websocket-floods-loop")
async def test_an_iteration_parses_the_requests_of_a_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, usual = 0, RequestHandler.data_received

    def timed(connection: RequestHandler, data: bytes) -> None:
        nonlocal parsed
        parsed += bool(data)
        usual(connection, data)

    monkeypatch.setattr(RequestHandler, "data_received", timed)
    budget = LoopBudget(asyncio.get_running_loop(), lambda: parsed * PARSE_SECONDS)
    connections = [opened(http_server(served, budget)) for _ in range(CONNECTIONS)]
    for connection, _ in connections:
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    # The read that finds the time spent leaves its bytes to a turn.
    most = round(ITERATION_SECONDS / PARSE_SECONDS) + 1
    assert parsed <= most
    assert await most_in_an_iteration(lambda: parsed, CONNECTIONS) <= most
    for connection, _ in connections:
        connection.connection_lost(None)


async def test_a_connection_that_ends_while_its_bytes_wait_leaves_nothing() -> None:
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path)
        return await not_served(request)

    budget = spent_budget()
    connection, socket = opened(http_server(answer, budget))
    connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert socket.paused
    connection.connection_lost(None)
    await turns(10)
    assert (asked, len(budget)) == ([], 0)


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.threat("tiny-body-chunks")
def test_what_comes_after_an_answer_that_ends_the_connection_is_dropped(clock: ChunkClock) -> None:
    async def main() -> None:
        async with running() as at:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port.port)
            writer.write(b"POST /x" + HEAD + CHUNK)
            assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
            # Parsed and read, which may be only then.
            await eventually(lambda: clock.chunks == 2, "the chunk that came with the request")
            writer.write(A_READ * 3)
            # The proxy waits for the end of the body in vain, for the time of its lingering.
            await reader.read()
            writer.close()
            assert clock.chunks == 2

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
        connection, socket = opened(http_server(answer, budget if seed % 5 else None))
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
        await turns(100)
        # All that was sent has been answered, and the socket is read on.
        assert (socket.written.count(b"HTTP/1.1 200 "), socket.paused) == (len(expected), False)
        connection.connection_lost(None)

    run_virtual(main())


# --- answers of brokers ---------------------------------------------------------------------------

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def asked(budget: LoopBudget) -> tuple[BrokerAnswers, Socket]:
    connection, socket = BrokerAnswers(asyncio.get_running_loop(), budget), Socket()
    connection.connection_made(socket)
    connection.set_response_params(read_bufsize=16_384, auto_decompress=False)
    return connection, socket


@pytest.mark.threat("tiny-answer-chunks")
async def test_an_answer_that_nobody_reads_is_not_parsed_on_and_its_socket_not_read(clock: ChunkClock) -> None:
    connection, socket = asked(clock.budget())
    connection.data_received(ANSWER + A_READ)
    await turns(200)
    assert socket.paused
    assert connection.should_close
    assert clock.chunks <= 16_384 // 16 + FEW_LINES
    _, body = await connection.read()
    size = 0
    while size < 8192:
        size += len(await body.read(32_768))
    await asyncio.sleep(0)
    assert not socket.paused


@pytest.mark.parametrize("seed", range(10))
async def test_however_bytes_of_an_answer_come_its_body_is_what_was_sent(seed: int, clock: ChunkClock) -> None:
    draw, sent = random.Random(seed), b""
    data = bytearray(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + ANSWER)
    for _ in range(200):
        chunk = draw.randbytes(draw.choice((1, 1, 1, 100, 5000)))
        data += b"%x\r\n%b\r\n" % (len(chunk), chunk)
        sent += chunk
    data += END
    budget, got = clock.budget(), b""
    connection, socket = asked(budget)

    async def come() -> None:
        while data:
            while socket.paused:
                await turns(1)
            if draw.random() < 0.3:
                budget.spent()
                clock.now += 2 * ITERATION_SECONDS
            size = draw.choice((1, 50, 10_000, 65_536))
            connection.data_received(bytes(data[:size]))
            del data[:size]
            await turns(1)

    coming = asyncio.get_running_loop().create_task(come())
    assert (await connection.read())[0].code == 103
    _, body = await connection.read()
    while piece := await body.read(draw.choice((1000, 32_768))):
        got += piece
    await coming
    assert got == sent
    assert not connection.should_close


# --- answers to the proxy's own questions ---------------------------------------------------------


@pytest.mark.threat("tiny-chunks-own-questions")
async def test_an_iteration_parses_few_of_the_chunks_of_a_brokers_statistics(
    clock: ChunkClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that stands still shall not end the answer before its last chunk.
    monkeypatch.setattr("proxy.brokers.admin_port.ANSWER_SECONDS", patient(60))
    budget = clock.budget()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER + CHUNK * 60_000 + END)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        questions = BrokerQuestions((url,), AdminPort(OWN, None, lambda: partial(connector_of_one, budget)))
        with clock.watched(), pytest.raises(AdminUnavailable):
            await questions.backlog("persistent://t/n/topic")
    assert clock.chunks >= 60_000
    # A few turns, and one step more of the task that reads.
    assert clock.longest <= 3 * ITERATION_SECONDS
