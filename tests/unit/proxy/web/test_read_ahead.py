"""What a connection sends ahead of its answers is kept as bytes, but for one head."""

import asyncio
import gc
import tracemalloc

import pytest
from aiohttp import web

from proxy.app.memory.budget import WEB_CONNECTION_BYTES, WEB_HEADS_BYTES, WEB_READ_BUFFERS
from proxy.web.connection import HttpConnection
from proxy.web.server import MOST_HEADERS
from tests.support.clients.async_client import eventually
from tests.support.web.fake_socket import LONGEST_HEADER, Socket, http_server, opened
from tests.support.web.web_parts import running

BUFFER_BYTES = 32_768
CONNECTIONS = 20
HEADS = 40
NAMES = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"][: MOST_HEADERS - 5]
FIRST = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n"
FIELDS = {
    "tiny": [f"{name}:" for name in NAMES],
    "short": [f"{name * 3}:{name}yy" for name in NAMES],
    "full": [f"{name}:{'v' * 75}" for name in NAMES],
    "three texts for each name": [f"{name.upper() * 12}:{'v' * 6}" for name in NAMES],
    "wide": [f"{name}:{'v' * 14}\U0001f600" for name in NAMES],
    "one wide": [f"a:{'v' * 2000}\U0001f600"],
}


def head(fields: list[str], path: str = "/next") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, "\r\n"]).encode()


class Site:
    """Answers requests when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.server = http_server(self.answer)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path)
        await self.go.wait()
        return web.Response()

    def connect(self) -> tuple[HttpConnection, Socket]:
        return opened(self.server)


@pytest.mark.threat("parsed-requests-ahead")
@pytest.mark.parametrize("kind", FIELDS)
async def test_heads_sent_ahead_stay_in_the_line_of_the_budget(kind: str) -> None:
    site = Site()
    warm = site.connect()
    warm[0].data_received(FIRST + head(FIELDS[kind]) * HEADS)
    await eventually(lambda: len(site.asked) == 1, "the first request")
    # What one read brings at most.
    sent = (head(FIELDS[kind]) * HEADS)[: WEB_READ_BUFFERS * BUFFER_BYTES]
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        connected = [site.connect() for _ in range(CONNECTIONS)]
        for connection, _ in connected:
            connection.data_received(head(FIELDS[kind]))
        await eventually(lambda: len(site.asked) == 1 + CONNECTIONS, "a request of each in work")
        for connection, _ in connected:
            connection.data_received(bytes(bytearray(sent)))
        await eventually(lambda: all(socket.paused for _, socket in connected), "nobody to be read")
        gc.collect()
        grown = (tracemalloc.get_traced_memory()[0] - before) // CONNECTIONS
    finally:
        tracemalloc.stop()
    allowed = WEB_CONNECTION_BYTES + WEB_HEADS_BYTES + 2 * LONGEST_HEADER
    assert grown <= allowed + WEB_READ_BUFFERS * BUFFER_BYTES


@pytest.mark.threat("parsed-requests-ahead")
@pytest.mark.parametrize(
    ("name", "value", "too_large"),
    [("a", "v" * 8000, False), ("a", "v" * 8180, True), ("a", "\u00e4" * 4000, True), ("a" * 2650, "", False),
     ("a" * 2800, "", True)],
)  # fmt: skip
async def test_the_text_of_a_head_counts_with_the_memory_that_it_takes(name: str, value: str, too_large: bool) -> None:
    async with running() as at:
        assert (await at.get("/nowhere", "GET", f"{name}: {value}")).status == (431 if too_large else 404)
