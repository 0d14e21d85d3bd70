"""The reader of HTTP connections under the fuzzer: which requests a stream has, however it is cut (see `targets`).

Bytes behind a mistake cost aiohttp the requests that came in the same read, so that fewer requests may be seen; never
other ones: whoever stands before the proxy and sees other requests than the proxy does could be made to smuggle one.
"""

import asyncio
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from aiohttp import web

from proxy.core.counters import Counters
from proxy.web.connection import READ_AHEAD_BYTES, TOO_LARGE, HttpServer
from proxy.web.server import MOST_HEADERS
from tests.support.loops.loops import run_without_sockets
from tests.support.sockets.frames import pieces_of
from tests.support.web.fake_socket import Socket

LONGEST_HEADER: Final = 1024
MOST_READS: Final = 64
# Turns of the loop between two reads, and turns without any news after which there will be none.
TURNS_BETWEEN: Final = 3
STILL_TURNS: Final = 25

# Method, path, headers, body; None: the body had not come to its end.
Asked = tuple[str, str, tuple[tuple[str, str], ...], bytes | None]


class _Site:
    """Answers each request when its body has come."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.server = HttpServer(
            self._answer, Counters(), None, 1,
            access_log=None, auto_decompress=False, tcp_keepalive=False, max_headers=MOST_HEADERS,
            max_line_size=LONGEST_HEADER, max_field_size=LONGEST_HEADER, read_bufsize=READ_AHEAD_BYTES,
            handler_cancellation=True, lingering_time=0,
        )  # fmt: skip

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        head = (request.method, request.raw_path, tuple(request.headers.items()))
        at = len(self.asked)
        self.asked.append((*head, None))
        response = web.Response()
        if request.raw_headers is TOO_LARGE:
            # As the proxy does.
            response.force_close()
            return response
        self.asked[at] = (*head, await request.content.read(-1))
        return response


async def _requests(reads: Sequence[bytes]) -> list[Asked]:
    site, socket = _Site(), Socket()
    connection = site.server()
    connection.connection_made(socket)
    for read in reads:
        if socket.closed:
            break
        connection.data_received(read)
        await _turns(TURNS_BETWEEN)
    before, still = None, 0
    while still < STILL_TURNS:
        await asyncio.sleep(0)
        now = len(site.asked), len(socket.written), socket.closed
        still = still + 1 if now == before else 0
        before = now
    connection.connection_lost(None)
    await _turns(STILL_TURNS)
    return site.asked


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def http_stream(data: bytes) -> None:
    body = data[1:]
    step = max(data[0] if data else 1, 1 + len(body) // MOST_READS)
    reads = [bytes(read) for read in pieces_of(body, [step] * (len(body) // step + 1))]
    in_reads, at_once = (run_without_sockets(_requests(each)) for each in (reads, [body]))
    for one, other in zip_longest(in_reads, at_once):
        if one is None or other is None:
            break
        assert one[:3] == other[:3], (one, other)
        assert None in (one[3], other[3]) or one[3] == other[3], (one, other)


def http_stream_seeds() -> list[bytes]:
    get, post = b"GET /a HTTP/1.1\r\nHost: x\r\n", b"POST /b HTTP/1.1\r\nHost: x\r\n"
    body, chunks = b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    streams = [
        get + b"\r\n",
        post + body + get + b"\r\n",
        post + chunks + get + b"\r\n",
        get + upgrade % b"websocket" + get + b"\r\n",
        get + upgrade % b"h2c" + get + b"\r\n",
        post + b"Expect: 100-continue\r\n" + body + post + chunks,
        get + b"Connection: close\r\n\r\n" + get + b"\r\n",
        get + b"X: " + b"y" * LONGEST_HEADER + b"\r\n\r\n" + get + b"\r\n",
        b"GET http://h/c HTTP/1.0\r\n\r\n" + get + b"\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nz\r\n" * 20 + b"0\r\nT: 1\r\n\r\n" + get + b"\r\n",
    ]
    return [bytes([step]) + stream for step in (1, 7, 200) for stream in streams]
