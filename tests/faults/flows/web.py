"""Flows over HTTP: a request, an upload, a WebSocket; a web service behind `own_way` answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from tests.faults.flows.flow import Flow, Refused
from tests.support.clients.async_client import AsyncClient, Closed
from tests.support.faults.proxy import FaultProxy
from tests.support.web.fake_web_broker import echoed, fake_web_broker

if TYPE_CHECKING:
    from tests.faults.scene import Scene

ADMIN = "/admin/v2/clusters"
SOCKET = "/ws/v2/producer/persistent/t/n/topic"
BODY = bytes(range(256)) * 120
UPLOAD = bytes(200_000)


async def serve(request: web.BaseRequest) -> web.StreamResponse:
    """Answer a GET, take a PUT, or give each message back."""
    if request.headers.get("Upgrade") == "websocket":
        return await echoed(request)
    if request.method == "PUT":
        taken = await request.read()
        return web.Response(status=204 if taken == UPLOAD else 400)
    return web.Response(body=BODY)


class OverHttp(Flow):
    """A flow on the web port."""

    own = True
    client: AsyncClient

    def keys(self, own_way: FaultProxy) -> dict[str, Any]:
        return {"brokerWebServiceURL": f"http://127.0.0.1:{own_way.port}"}

    def port(self, at: "Scene") -> int:
        return at.stage.proxy.web_port

    @asynccontextmanager
    async def server(self) -> AsyncIterator[int]:
        async with fake_web_broker(serve) as broker:
            yield broker.port

    async def prepare(self, at: "Scene") -> None:
        self.client = await at.client()

    async def exchange(self, head: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request, and give the status and the body of the answer."""
        await self.client.send(head.encode() + body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += await self.client.receive(1)
        lines = answer.decode("latin-1").lower().split("\r\n")
        lengths = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
        status = int(lines[0].split()[1])
        return status, await self.client.receive(lengths[0] if lengths else 0)


class Request(OverHttp):
    async def ask(self, at: "Scene") -> None:
        status, body = await self.exchange(f"GET {ADMIN} HTTP/1.1\r\nHost: p\r\n\r\n")
        if status >= 400:
            raise Refused(f"{status} {body.decode()}")
        assert (status, body) == (200, BODY)


class Upload(OverHttp):
    async def ask(self, at: "Scene") -> None:
        head = f"PUT {ADMIN} HTTP/1.1\r\nHost: p\r\nContent-Length: {len(UPLOAD)}\r\n\r\n"
        status, body = await self.exchange(head, UPLOAD)
        if status >= 400:
            raise Refused(f"{status} {body.decode()}")
        assert status == 204


class WebSocket(OverHttp):
    """A message over an open WebSocket, and back."""

    session: aiohttp.ClientSession
    socket: aiohttp.ClientWebSocketResponse[bool]

    async def prepare(self, at: "Scene") -> None:
        self.session = aiohttp.ClientSession()
        self.socket = await self.session.ws_connect(f"http://127.0.0.1:{at.client_way.port}{SOCKET}", max_msg_size=0)

    async def ask(self, at: "Scene") -> None:
        await self.socket.send_bytes(BODY)
        message = await self.socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise Closed(f"{message.type.name} {self.socket.close_code}")
        assert message.data == BODY

    async def leave(self) -> None:
        # Without a word of WebSockets.
        await self.session.close()
        await asyncio.sleep(0)
