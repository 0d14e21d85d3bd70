"""One client with many requests over HTTP, a tenth of what the limits allow: the others are served all the same."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.web.forward import broker_client, places
from proxy.web.forward.websockets import PIECE_SECONDS
from proxy.web.http.errors import ANSWERS
from proxy.web.server import PATH_BYTE_SECONDS, REQUEST_SECONDS
from tests.integration.test_floods import Iterations, noted
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed
from tests.support.patience import in_time, patient
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import staged
from tests.support.web.fake_web_broker import echoed, raw_web_broker
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

CROWD = 26
OTHER_ADDRESS = "127.0.0.2"
LARGE = "/admin/v2/persistent/t/n/x/stats"
SOCKET = "/ws/v2/producer/persistent/t/n/topic"
ASK = f"GET {LARGE} HTTP/1.1\r\nHost: p\r\n\r\n".encode()
OPENING = (
    f"GET {SOCKET} HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
UPLOAD = f"PUT {LARGE} HTTP/1.1\r\nHost: p\r\nContent-Length: 100000000\r\n\r\n".encode()
# Not the rule for those who take nothing for long: others must not have to wait for that.
NO_STALL = {"topicListWriteStallTimeoutMillis": 0}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "MOST_CONNECTIONS_A_SERVER", CROWD)
    monkeypatch.setattr(broker_client, "WAIT_SECONDS", patient(5.0))
    monkeypatch.setattr("proxy.web.forward.settings.GATE_SECONDS", patient(5.0), raising=False)


async def large_or_small(request: web.BaseRequest) -> web.StreamResponse:
    async for _ in request.content.iter_any():
        pass
    return web.Response(body=bytes(2_000_000 if request.path == LARGE else 2))


async def silent_or_small(request: web.BaseRequest) -> web.StreamResponse:
    if request.path != ADMIN:
        await asyncio.Event().wait()
    return web.Response(body=b"[]")


async def socket_or_silent(request: web.BaseRequest) -> web.StreamResponse:
    return await (echoed if request.path == SOCKET else silent_or_small)(request)


def only(places: int) -> dict[str, int]:
    """Have a crowd of less than `CROWD` hold all places, and one of `CROWD` all connections to the broker."""
    return {"maxConcurrentHttpRequests": places if places < CROWD else 100}


async def crowd(at: WebStage, opening: bytes, size: int = CROWD, asked: int = 0) -> list[AsyncClient]:
    """Have as many clients as there are places send the beginning of a request, and take nothing."""
    clients = []
    for _ in range(size):
        client = await at.stage.client(4096, at.stage.proxy.web_port)
        clients.append(client)
        await client.send(opening)
    await at.stage.until(lambda: len(at.broker.asked) == (asked or size), "all requests of the crowd at the broker")
    return clients


@asynccontextmanager
async def elsewhere() -> AsyncIterator[aiohttp.ClientSession]:
    """Give a client of another address."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(OTHER_ADDRESS, 0))) as client:
        yield client


@pytest.mark.threat("unread-http-answers")
@pytest.mark.parametrize("places", [CROWD, 10])
async def test_answers_that_nobody_reads_leave_places_to_others(places: int) -> None:
    async with web_staged(**NO_STALL, **only(places), httpOutputBufferSize=4096) as at:
        at.broker.answer = large_or_small
        await crowd(at, ASK, places)
        assert (await at.ask()).status == 200
        assert 1 <= at.stage.caused("reads_too_slowly") < places


@pytest.mark.threat("unread-http-answers")
@pytest.mark.parametrize("places", [CROWD, 10])
async def test_uploads_that_drip_leave_places_to_others(places: int) -> None:
    async with web_staged(**NO_STALL, **only(places)) as at:
        at.broker.answer = large_or_small
        await crowd(at, UPLOAD + b"x", places)
        assert (await at.ask()).status == 200
        assert 1 <= counted(at.stage.proxy.counters, "http_refused_requests", "slow_upload") < places


@pytest.mark.threat("unread-http-answers")
@pytest.mark.parametrize(("places", "for_uploads"), [(CROWD, 20), (10, 8)])
async def test_who_has_sent_its_whole_request_waits_for_no_upload_of_its_own_address(
    places: int, for_uploads: int
) -> None:
    # No upload is too slow here, so none ends for others.
    async with web_staged(**NO_STALL, topicListWriteMinBytesPerSecond=0, **only(places)) as at:
        at.broker.answer = large_or_small
        await crowd(at, UPLOAD + b"x", places, asked=for_uploads)
        assert (await at.ask()).status == 200
        assert (await at.ask(method="PUT", data=b"4")).status == 200
        assert len(at.broker.asked) == for_uploads + 2
        assert not counted_by(at.stage.proxy.counters, "http_refused_requests")


@pytest.mark.threat("lasting-http-requests")
@pytest.mark.parametrize("places", [CROWD, 10])
async def test_requests_that_last_leave_places_to_another_address(places: int) -> None:
    async with web_staged(**only(places)) as at, elsewhere() as other:
        at.broker.answer = silent_or_small
        clients = await crowd(at, ASK, places)
        assert (await at.ask(client=other)).status == 200
        assert counted_by(at.stage.proxy.counters, "http_refused_requests") == {"gave_way": 1}
        # The longest request of the address with most has given way, with an answer.
        assert (await clients[0].receive(12)) == b"HTTP/1.1 503"


@pytest.mark.threat("lasting-http-requests")
async def test_an_address_alone_has_all_places_and_who_waits_is_answered_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.web.forward.settings.GATE_SECONDS", 0.05, raising=False)
    async with web_staged(maxConcurrentHttpRequests=10) as at:
        at.broker.answer = silent_or_small
        await crowd(at, ASK, 10)
        assert counted(at.stage.proxy.counters, "http_requests_in_work") == 10
        answer = await at.ask()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "maxConcurrentHttpRequests" in answer.json["reason"]
        assert counted(at.stage.proxy.counters, "http_requests_in_work") == 10


@pytest.mark.threat("silent-websockets")
async def test_open_websockets_hold_no_place_of_requests() -> None:
    async with web_staged(maxConcurrentHttpRequests=10) as at:
        at.broker.answer = socket_or_silent
        sockets = [await at.client.ws_connect(at.url + SOCKET) for _ in range(10)]
        counters = at.stage.proxy.counters
        assert (counted(counters, "http_tunnels"), counted(counters, "http_requests_in_work")) == (10, 0)
        assert (await at.ask()).status == 200
        for socket in sockets:
            await socket.send_bytes(b"x")
            assert (await socket.receive(20)).data == b"x"


@pytest.mark.threat("silent-websockets")
async def test_one_websocket_more_ends_the_longest_idle_of_the_address_with_most() -> None:
    async with web_staged(maxHttpServerConnections=20) as at, elsewhere() as other:
        at.broker.answer = socket_or_silent
        # The oldest of all, and idle: but its address has only this one.
        lone = await other.ws_connect(at.url + SOCKET)
        many = [await at.client.ws_connect(at.url + SOCKET) for _ in range(9)]
        await many[0].send_bytes(b"x")
        assert (await many[0].receive(20)).data == b"x"
        newest = await other.ws_connect(at.url + SOCKET)
        assert (await many[1].receive(20)).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        for socket in (lone, newest, many[0], *many[2:]):
            await socket.send_bytes(b"y")
            assert (await socket.receive(20)).data == b"y"
        assert (at.stage.caused("gave_way"), counted(at.stage.proxy.counters, "http_tunnels")) == (1, 10)


ALONE = "GET {} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"
KEPT = 3  # an eighth of the connections


@asynccontextmanager
async def full_port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebStage]:
    """Let one address hold all that may be passed on: 8 WebSockets, 10 requests at work, and others that wait."""
    # Those that wait must not leave before the test has ended.
    monkeypatch.setattr("proxy.web.forward.settings.GATE_SECONDS", 600.0)
    keys = {"maxHttpServerConnections": CROWD, "maxConcurrentHttpRequests": 10}
    async with web_staged(**keys) as at:
        at.broker.answer = socket_or_silent
        sockets = [await at.client.ws_connect(at.url + SOCKET) for _ in range(8)]
        await crowd(at, ASK, 10, asked=18)
        for waiting in range(1, CROWD - KEPT - 18 + 1):
            await one_more(at)
            await at.stage.until(lambda number=waiting: at.waiting == number, "a request on each connection")  # type: ignore[misc]
        yield at
        for socket in sockets:
            await socket.close()


async def one_more(at: WebStage) -> AsyncClient:
    client = await at.stage.client(port=at.stage.proxy.web_port)
    await client.send(ASK)
    return client


@pytest.mark.threat("busy-web-connections")
async def test_a_probe_is_answered_while_its_own_address_holds_all_that_may_be_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with full_port(monkeypatch) as at:
        for page in ("/healthz", "/readyz", "/metrics") * KEPT:
            # One more request of that address finds no place, and gets an answer.
            refused = await one_more(at)
            assert await at.status_of(ALONE.format(page)) == 200
            assert (await refused.receive(12)) == b"HTTP/1.1 503"
        # Connections that say nothing replace one another, not the requests.
        for _ in range(2 * KEPT):
            await at.stage.client(port=at.stage.proxy.web_port)
        assert await at.status_of(ALONE.format("/healthz")) == 200
        counters = at.stage.proxy.counters
        assert (counted(counters, "http_requests_in_work"), at.waiting) == (10, 5)
        assert counted(counters, "http_tunnels") == 8


async def come_again(at: WebStage, port: int) -> None:
    """Open twice as many connections as there may be, one after the other, that say nothing."""
    before = at.stage.caused("connection_limit")
    for _ in range(2 * CROWD):
        await at.stage.client(port=port)
    await at.stage.until(lambda: at.stage.caused("connection_limit") >= before + CROWD, "the crowd at the limit")


async def is_answered_between(at: WebStage, port: int) -> None:
    """Have a crowd come again while a client of another address has sent no request yet, and while it is idle."""
    client = await at.stage.client(port=port, source=OTHER_ADDRESS)
    for _ in range(2):
        await come_again(at, port)
        await client.send(b"HEAD /healthz HTTP/1.1\r\nHost: p\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += await client.receive(1)
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.threat("returning-web-connections")
async def test_stopped_uploads_and_connections_that_come_again_keep_no_other_address_out() -> None:
    keys = {"topicListWriteMinBytesPerSecond": 0, "maxHttpServerConnections": CROWD}
    async with web_staged(**NO_STALL, **keys) as at, elsewhere() as other:
        at.broker.answer = large_or_small
        uploads = await crowd(at, UPLOAD + b"x", 20)
        await is_answered_between(at, at.stage.proxy.web_port)
        assert (await at.ask(client=other)).status == 200
        # Connections that say nothing gave way, and no upload.
        for upload in uploads:
            await upload.send(b"x")
        assert counted(at.stage.proxy.counters, "http_requests_in_work") == 20


@pytest.mark.threat("returning-web-connections")
async def test_connections_that_come_again_keep_no_other_address_off_the_port_for_monitors() -> None:
    async with web_staged(metricsPort="0") as at:
        web = at.stage.proxy.web
        assert web is not None
        assert web.metrics_port
        await is_answered_between(at, web.metrics_port)


@pytest.mark.threat("returning-web-connections")
async def test_clients_that_come_together_through_a_balancer_end_none_of_one_another() -> None:
    async with web_staged(maxHttpServerConnections=8, webServiceHaProxyProtocolEnabled="true") as at:
        # In two crowds of eight different addresses; the second one comes before the proxy looks again.
        for first in (0, 8):
            clients = []
            for number in range(first, first + 8):
                client = AsyncClient(socket.create_connection((LOOPBACK, at.stage.proxy.web_port)))
                at.stage.clients.append(client)
                clients.append(client)
                client.sock.send(encode(ProxyHeader(HostPort(f"203.0.113.{number}", 1), HostPort(LOOPBACK, 1)), 1))
                client.sock.send(b"GET /healthz HTTP/1.1\r\nHost: p\r\n\r\n")
                client.sock.setblocking(False)
            for client in clients:
                assert (await client.receive(12)) == b"HTTP/1.1 200"


@pytest.mark.threat("busy-web-connections")
async def test_another_address_takes_the_place_of_the_youngest_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with full_port(monkeypatch) as at, elsewhere() as other:
        clients = at.stage.clients[-5:]
        assert (await at.ask(client=other)).status == 200
        with pytest.raises(Closed):
            await clients[-1].receive(1)
        assert at.stage.caused("connection_limit") == 1


@pytest.mark.threat("http-rate-used-up")
async def test_one_address_cannot_use_up_the_rate_of_requests_for_others() -> None:
    loop = asyncio.get_running_loop()
    async with web_staged(httpRequestsLimitEnabled="true", httpRequestsMaxPerSecond="0.05") as at:
        async with elsewhere() as crowd:
            began = loop.time()
            assert [(await at.ask(client=crowd)).status for _ in range(5)] == [200, 429, 429, 429, 429]
            refused = await at.ask(client=crowd)
            # A request each 20 s, of which the requests themselves may have taken a part.
            assert 20 - (loop.time() - began) <= int(refused.headers["Retry-After"]) <= 20
            assert "httpRequestsMaxPerSecond" in refused.text
        assert [(await at.ask()).status for _ in range(2)] == [200, 429]


# --- the event loop -------------------------------------------------------------------------------


@pytest.mark.threat("websocket-floods-loop", "path-of-slashes")
@pytest.mark.parametrize("path", ["/nowhere", "/admin/" + "%25" * 2300])
async def test_an_iteration_answers_a_few_of_many_requests_and_fewer_with_long_paths(path: str) -> None:
    connections, seconds = 60, REQUEST_SECONDS + len(path) * PATH_BYTE_SECONDS
    async with staged() as stage:
        answers = stage.proxy.counters[ANSWERS]
        stage.proxy.core.loop_budget.now = lambda: answers["4xx"] * seconds
        clients = [await stage.client(port=stage.proxy.web_port) for _ in range(connections)]
        # The answers are small: the kernel keeps them until the clients read.
        for client in clients:
            client.send_now(f"GET {path} HTTP/1.1\r\nHost: p\r\n\r\n".encode() * 4)
        most = before = 0.0
        async with in_time():
            while before < 4 * connections:
                await asyncio.sleep(0)
                before, grown = answers["4xx"], answers["4xx"] - before
                most = max(most, grown)
        # Those who got a turn work in the next iteration, beside a first request.
        assert most <= 2 * round(ITERATION_SECONDS / seconds) + 2


@pytest.mark.threat("request-places-search")
async def test_a_look_at_requests_of_many_addresses_asks_for_the_site_of_each_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = 60
    monkeypatch.setattr(broker_client, "MOST_CONNECTIONS_A_SERVER", 1000)
    monkeypatch.setattr("proxy.web.forward.settings.GATE_SECONDS", 600.0)
    asked = Iterations()
    noted(monkeypatch, places, "site_of", asked)
    async with web_staged(maxConcurrentHttpRequests=addresses) as at:
        at.broker.answer = silent_or_small
        for number in range(2 * addresses):
            client = await at.stage.client(port=at.stage.proxy.web_port, source=f"127.0.{number}.1")
            await client.send(ASK)
        await at.stage.until(lambda: at.waiting == addresses, "a request on each connection")
        asked.counts.clear()

        def looks() -> list[int]:
            return [count for count in asked.counts.values() if count >= addresses]

        await at.stage.until(lambda: len(looks()) >= 3, "some looks at all who hold a place or wait")
        asked.close()
        assert at.waiting == addresses
        # Some questions for each that holds or wants a place.
        assert max(looks()) <= 8 * 2 * addresses


@pytest.mark.threat("websocket-floods-loop")
async def test_an_iteration_passes_a_few_pieces_of_many_websockets_and_addresses_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd, seconds = 150, 0.0002
    passed: list[bytes] = []
    iterations = Iterations()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while await reader.read(65_536):
            pass
        writer.close()

    def passes(writer: asyncio.StreamWriter, data: bytes) -> None:
        iterations.note()
        passed.append(bytes(data[:1]))
        write(writer, data)

    async with raw_web_broker(taken) as url, staged(brokerWebServiceURL=url) as stage:
        clients = []
        for number in range(crowd + 1):
            source = OTHER_ADDRESS if number == crowd else LOOPBACK
            clients.append(await stage.client(port=stage.proxy.web_port, source=source))
            await clients[-1].send(OPENING)
            assert (await clients[-1].receive(12)) == b"HTTP/1.1 101"
        write = asyncio.StreamWriter.write
        monkeypatch.setattr(asyncio.StreamWriter, "write", passes)
        stage.proxy.core.loop_budget.now = lambda: len(passed) * seconds
        for client in clients:
            client.send_now((b"o" if client is clients[-1] else b"c") * 1000)
        await stage.until(lambda: len(passed) == len(clients), "all pieces")
        iterations.close()
        # Those who got a turn in an iteration work in the next, beside those whose bytes have just come.
        a_few = round(ITERATION_SECONDS / PIECE_SECONDS) + round(ITERATION_SECONDS / seconds)
        assert max(iterations.counts.values()) <= 2 * a_few
        # Every second turn is the other's while it waits.
        assert passed.index(b"o") <= 2 * a_few
