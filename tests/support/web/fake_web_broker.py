"""Own a web service that answers as a test says, and remembers what it was asked.

Rule: what is answered is a coroutine of the test; the server adds nothing, decodes nothing and knows no proxy.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from proxy.brokers.list_question import PATH as BROKER_LIST

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def echoed(request: web.BaseRequest) -> web.WebSocketResponse:
    """Open a WebSocket, and give each message back until its client leaves."""
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        await socket.send_bytes(message.data)
    return socket


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: list[tuple[str, str]]

    def header(self, name: str) -> str | None:
        """Give the only header of a name."""
        found = [value for known, value in self.headers if known.lower() == name.lower()]
        assert len(found) < 2, found
        return found[0] if found else None


@dataclass
class FakeWebBroker:
    """A running server; `answer` may be replaced at any time."""

    answer: Answer
    port: int = 0
    tls: bool = False
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    # The brokers' own list, or the status of the refusal; a proxy with secret credentials asks for the list unbidden.
    brokers: list[str] | int = field(default_factory=list)
    list_questions: list[Asked] = field(default_factory=list)
    # The answer to a question for the list waits for this.
    list_shown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Give its base URL."""
        return f"http{'s' * self.tls}://127.0.0.1:{self.port}"

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.raw_path.endswith(BROKER_LIST):
            self.list_questions.append(Asked(request.method, request.raw_path, list(request.headers.items())))
            await self.list_shown.wait()
            brokers = self.brokers
            return web.Response(status=brokers) if isinstance(brokers, int) else web.json_response(brokers)
        self.asked.append(Asked(request.method, request.raw_path, list(request.headers.items())))
        return await self.answer(request)


async def fine(_: web.BaseRequest) -> web.StreamResponse:
    """Answer with a small document."""
    return web.Response(body=b'["ok"]', content_type="application/json")


async def swallowed(request: web.BaseRequest) -> web.StreamResponse:
    """Take a body of any size."""
    async for _ in request.content.iter_any():
        pass
    return web.Response(status=204)


async def silent(_: web.BaseRequest) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def redirect_to(location: str, status: int = 307) -> Answer:
    """Give what answers with a redirect when the body has come."""

    async def redirect(request: web.BaseRequest) -> web.StreamResponse:
        await swallowed(request)
        return web.Response(status=status, headers={"Location": location} if location else {}, body=b"moved")

    return redirect


@asynccontextmanager
async def fake_web_broker(
    answer: Answer = fine, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeWebBroker]:
    """Serve until the block ends."""
    broker = FakeWebBroker(answer, tls=tls is not None)
    broker.list_shown.set()
    server = web.Server(broker.handle, handler_cancellation=True, access_log=None, auto_decompress=False)

    def connection() -> asyncio.Protocol:
        broker.connections += 1
        return server()

    listening = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, ssl=tls)
    broker.port = listening.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        listening.close()
        await server.shutdown(0.1)
        await listening.wait_closed()


@asynccontextmanager
async def raw_web_broker(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], limit: int = 65_536
) -> AsyncIterator[str]:
    """Serve connections by hand; each ends with its peer, at the latest with the block. Gives the URL."""
    held: list[asyncio.StreamWriter] = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=limit)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in held:
            writer.transport.abort()
        server.close()
        await server.wait_closed()
