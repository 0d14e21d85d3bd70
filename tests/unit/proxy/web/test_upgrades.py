"""A request that asks for a protocol that is not served is answered, and nothing behind it is."""

import asyncio

import pytest
from aiohttp import web

from proxy.core.loop_budget import LoopBudget
from tests.support.loops.loops import run_virtual
from tests.support.web.fake_socket import http_server, opened

FIRST = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
EVIL = b"GET /evil HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /next HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(EVIL)
SIZED, CHUNKED = b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"


def asking(protocol: str, more: bytes = b"") -> bytes:
    line = b"POST" if more else b"GET"
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % protocol.encode()
    return line + b" /asks HTTP/1.1\r\nHost: x\r\n" + upgrade + more + b"\r\n"


def served(reads: list[bytes], *, spent: bool = False) -> tuple[list[tuple[str, bytes]], bytes, bool]:
    """Give what a client sends in some reads; returns the requests, the answers, and whether the connection ended."""
    found: list[tuple[str, bytes]] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found.append((request.path, await request.read()))
        return web.Response(text="x")

    async def main() -> tuple[bytes, bool]:
        budget = LoopBudget(asyncio.get_running_loop(), lambda: 0.0)
        connection, socket = opened(http_server(answer, budget))
        for read in reads:
            if spent:
                budget.charge(1.0)
            if not socket.closed:
                connection.data_received(read)
            for _ in range(20):
                await asyncio.sleep(0)
        closed = socket.closed
        connection.connection_lost(None)
        return socket.written, closed

    return found, *run_virtual(main())


@pytest.mark.threat("upgrade-smuggling")
@pytest.mark.parametrize("spent", [False, True])
@pytest.mark.parametrize("protocol", ["h2c", "h2c, websocket", "TLS/1.0", "websoc\u212aet"])
@pytest.mark.parametrize(
    "behind",
    [[b"", NEXT], [NEXT], [NEXT[:20], NEXT[20:]], [HEAD, EVIL], [HEAD + EVIL], [b"", NEXT * 600], [NEXT * 600]],
    ids=["later", "same read", "half", "body later", "body", "many later", "many"],
)
def test_nothing_behind_a_protocol_that_is_not_served_is_a_request(
    behind: list[bytes], protocol: str, spent: bool
) -> None:
    first, *later = behind
    found, written, closed = served([FIRST + asking(protocol) + first, *later], spent=spent)
    assert found == [("/first", b""), ("/asks", b"")]
    assert written.count(b"HTTP/1.1 ") == 2
    assert written.count(b"Connection: close") == 1
    assert closed


@pytest.mark.threat("upgrade-smuggling")
@pytest.mark.parametrize("spent", [False, True])
@pytest.mark.parametrize(
    "reads",
    [
        [asking("h2c", SIZED) + b"hello" + NEXT],
        [asking("h2c", SIZED), b"he", b"llo", NEXT],
        [asking("h2c", SIZED) + b"he", b"llo" + NEXT],
        [asking("h2c", CHUNKED) + b"5\r\nhello\r\n", b"0\r\n\r\n" + NEXT],
    ],
)
def test_the_body_of_such_a_request_comes_whole(reads: list[bytes], spent: bool) -> None:
    found, written, closed = served(reads, spent=spent)
    assert found == [("/asks", b"hello")]
    assert (written.count(b"HTTP/1.1 "), closed) == (1, True)


@pytest.mark.parametrize("protocol", ["websocket", "WebSocket"])
def test_a_websocket_that_is_declined_keeps_what_is_behind(protocol: str) -> None:
    found, _, closed = served([asking(protocol) + NEXT])
    assert [path for path, _ in found] == ["/asks", "/next"]
    assert not closed
