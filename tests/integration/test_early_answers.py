"""Brokers that answer while the body of a request is on its way, and take no more of it: the client gets the answer.

The Java proxy 4.0.8 has it by chance: Jetty's client ends an exchange whose request can no longer be written.
"""

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from aiohttp import web

from proxy.core.loop_budget import LoopBudget
from tests.support.auth.tls import PemFiles, server_context
from tests.support.loops.loops import eventually
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import staged
from tests.support.web.fake_web_broker import fake_web_broker

BODY: Final = b"x" * 300_000
NO_LINGER: Final = struct.pack("ii", 1, 0)
# Method, whether the body is chunked, whether the client waits for 100.
Form = tuple[str, bool, bool]


class Hasty:
    """A broker that reads the header of a request, and answers when it is told to, before it has the body."""

    def __init__(self, parts: list[bytes], end: str, context: ssl.SSLContext | None) -> None:
        self._parts = parts
        self._end = end
        self._context = context
        self._asking: socket.socket | None = None
        self._left: list[bytes] = []
        self._steps = 0
        self._expects = False
        self._held: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.proxy_port = 0
        self.port = self._listening.getsockname()[1]
        self._thread = Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                asking, _ = self._listening.accept()
            except OSError:
                return
            if not self._expects:
                # The same request once more.
                asking.close()
                continue
            self._expects = False
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                asking = self._context.wrap_socket(asking, server_side=True)
            got = b""
            while b"\r\n\r\n" not in got and (piece := asking.recv(1024)):
                got += piece
            self._left, self._steps = list(self._parts), 2
            self._asking = asking

    async def asked(self, form: Form) -> tuple[int, bytes]:
        """Send a request and its body, then read the answer; the connection lives on, or says that it does not."""
        method, chunked, expects = form
        self._expects = True
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy_port)
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(BODY)}"
        expectation = "Expect: 100-continue\r\n" if expects else ""
        try:
            writer.write(f"{method} /admin/v2/x HTTP/1.1\r\nHost: p\r\n{expectation}{framing}\r\n\r\n".encode())
            if expects:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            await eventually(lambda: self._asking is not None, "the header at the broker")
            for start in range(0, len(BODY), 10_000):
                piece = BODY[start : start + 10_000]
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
            writer.write(b"0\r\n\r\n" if chunked else b"")
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.split(": ", 1) for line in answer.split("\r\n")[1:] if line)
            status, size = int(answer.split()[1]), int(fields.get("Content-Length", "0"))
            body = await reader.readexactly(size)
            if "Transfer-Encoding" in fields:
                body = (await reader.readuntil(b"0\r\n\r\n")).split(b"\r\n")[1]
            elif fields.get("Connection") != "close":
                writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                assert (await reader.read()).split()[1] == b"200"
            return status, body
        finally:
            writer.transport.abort()

    def step(self) -> None:
        """Send the next part of the answer, and with the last one end the connection; the first two steps are free."""
        asking = self._asking
        self._steps -= asking is not None
        if asking is None or self._steps >= 0:
            return
        asking.sendall(self._left.pop(0))
        if self._left:
            return
        self._asking = None
        if self._end in ("keeps", "half-closes"):
            self._held.append(asking)
        if self._end == "half-closes":
            asking.shutdown(socket.SHUT_WR)
        if self._end == "resets":
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        if self._end in ("closes", "resets"):
            # Nothing of TLS says that this is the end.
            socket.socket(fileno=asking.detach()).close()

    def close(self) -> None:
        """Close every connection, and accept no more."""
        for held in self._held:
            held.close()
        if self._thread.is_alive():
            self._listening.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listening.close()


@asynccontextmanager
async def before(
    parts: list[bytes], end: str, monkeypatch: pytest.MonkeyPatch, context: ssl.SSLContext | None = None, **keys: Any
) -> AsyncIterator[Hasty]:
    """Own a proxy and a broker that answers between two steps of an upload, before the next step is written."""
    broker = Hasty(parts, end, context)
    client_turn = LoopBudget.client_turn

    async def turn(budget: LoopBudget, key: Hashable, seconds: float) -> None:
        await client_turn(budget, key, seconds)
        broker.step()

    monkeypatch.setattr(LoopBudget, "client_turn", turn)
    plain, tls = f"http://127.0.0.1:{broker.port}", f"https://localhost:{broker.port}"
    keys |= {"brokerWebServiceURL": plain} if context is None else {"brokerWebServiceURLTLS": tls}
    try:
        with no_errors():
            async with staged(**keys) as stage, in_time():
                broker.proxy_port = stage.proxy.web_port
                yield broker
                broker.close()
    finally:
        broker.close()


@contextmanager
def no_errors() -> Iterator[None]:
    """Let nothing be told to the event loop, as an exception that nobody asked for is."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    try:
        yield
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert told == []


def head(status: int, body: bytes = b"", *fields: str) -> bytes:
    lines = "".join(f"{field}\r\n" for field in (*fields, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body


CHUNKED = b"HTTP/1.1 413 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
UNTIL_END = b"HTTP/1.1 413 X\r\n\r\nno"
EARLY: Final[dict[str, tuple[list[bytes], str, int, bytes]]] = {
    "401": ([head(401, b"no", "WWW-Authenticate: Bearer")], "closes", 401, b"no"),
    "413": ([head(413, b"no")], "closes", 413, b"no"),
    "413, then reset": ([head(413, b"no")], "resets", 413, b"no"),
    "413, and no more is read": ([head(413, b"no")], "keeps", 413, b"no"),
    "413, its body later": ([head(413, b"no")[:-2], b"no"], "closes", 413, b"no"),
    "413 of a chunk": ([CHUNKED], "closes", 413, b"no"),
    "413 until the end": ([UNTIL_END], "closes", 413, b"no"),
    "413 with a page": ([head(413, b"n" * 20_000)], "closes", 413, b"n" * 20_000),
    "100, then 413": ([b"HTTP/1.1 100 Continue\r\n\r\n" + head(413, b"no")], "closes", 413, b"no"),
    "204": ([b"HTTP/1.1 204 X\r\n\r\n"], "closes", 204, b""),
    "200": ([head(200, b"yes")], "closes", 200, b"yes"),
}
FORMS = pytest.mark.parametrize(
    "form",
    [("PUT", False, False), ("POST", True, False), ("PUT", True, True)],
    ids=["sized", "chunked", "expects 100"],
)


@FORMS
@pytest.mark.parametrize("early", EARLY)
async def test_an_answer_that_comes_before_the_body_has_gone_is_the_client_s(
    early: str, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, end, status, body = EARLY[early]
    async with before(parts, end, monkeypatch) as broker:
        assert [await broker.asked(form) for _ in range(2)] == [(status, body)] * 2


@FORMS
@pytest.mark.parametrize("end", ["closes", "resets", "keeps", "half-closes"])
@pytest.mark.parametrize("copy_bytes", [1_000_000, 0])
async def test_an_early_redirect_takes_the_whole_body_along_or_is_the_client_s(
    copy_bytes: int, end: str, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def counted(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=str((await request.read()) == BODY))

    async with fake_web_broker(counted) as owner:
        redirect = head(307, b"", f"Location: {owner.url}/admin/v2/x")
        keys: dict[str, Any] = {
            "httpInputMaxReplayBufferSize": copy_bytes,
            "brokerWebServiceAllowedTargetPorts": owner.port,
        }
        async with before([redirect], end, monkeypatch, **keys) as broker:
            expected = (200, b"True") if copy_bytes else (307, b"")
            assert [await broker.asked(form) for _ in range(2)] == [expected] * 2


@FORMS
@pytest.mark.parametrize("end", ["closes", "resets"])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 413 X\r\nContent-"])
async def test_a_broker_that_closes_without_an_answer_is_still_a_502(
    sent: bytes, end: str, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with before([sent], end, monkeypatch) as broker:
        status, body = await broker.asked(form)
        assert (status, b"broke before it answered" in body) == (502, True)


@FORMS
@pytest.mark.parametrize("end", ["closes", "resets", "keeps"])
async def test_an_early_answer_over_tls_is_the_client_s(
    end: str, form: Form, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = PemFiles.write(tmp_path).broker_keys
    async with before([head(413, b"no")], end, monkeypatch, server_context(), **keys) as broker:
        assert [await broker.asked(form) for _ in range(2)] == [(413, b"no")] * 2
