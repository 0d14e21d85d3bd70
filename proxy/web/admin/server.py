"""The HTTP server of the admin API: validate a request, answer it by one of two tables, and write slices.

Rule: every refusal is a JSON document `{"reason": ...}`. No exception of one admin client reaches another. A long
answer is never complete in memory: the client must read a slice before the next one is made.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson
from aiohttp import HttpVersion10, web
from multidict import CIMultiDict

from proxy.core.counters import Counters
from proxy.web.admin import routes
from proxy.web.admin.access import AdminAccess
from proxy.web.admin.actions import Action
from proxy.web.admin.paging import Answer, Row, Rows
from proxy.web.admin.routes import BadParameter, Parameter, Route
from proxy.web.admin.slots import AdminSlot
from proxy.web.admin.views import View
from proxy.web.connection import TOO_LARGE, HttpConnection
from proxy.web.forward.routes import BadPath, checked_segments
from proxy.web.http.errors import JSON, HttpRefused

LONGEST_HEADER_BYTES: Final = 8192
LONGEST_BODY_BYTES: Final = 4096
MOST_HEADERS: Final = 64
_BETWEEN: Final = b","


class AdminConnection(HttpConnection):
    """The connection of an admin client, in its slot."""

    __slots__ = ("slot",)

    header_refusal = f"expected a header of at most {LONGEST_HEADER_BYTES} bytes"
    slot: AdminSlot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(self._manager, AdminServer)
        super().connection_made(transport)
        # A cast would claim a type that the transport does not have: uvloop's transports subclass no class of asyncio.
        abort = transport.abort  # type: ignore[attr-defined]
        self.slot.connected(abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.slot.disconnected()


class AdminServer(web.Server):
    """Answers the requests of the admin clients of one proxy."""

    def __init__(
        self, counters: Counters, access: AdminAccess, views: Mapping[str, View], actions: Mapping[str, Action]
    ) -> None:
        super().__init__(
            self.answer, handler_cancellation=True, access_log=None, lingering_time=0.0, auto_decompress=False,
            max_headers=MOST_HEADERS, max_line_size=LONGEST_HEADER_BYTES, max_field_size=LONGEST_HEADER_BYTES,
            read_bufsize=LONGEST_BODY_BYTES, tcp_keepalive=False,
        )  # fmt: skip
        self._counters = counters
        self._access = access
        self._views = views
        self._actions = actions
        routes.check_answered(views, actions)

    def connection(self, slot: AdminSlot) -> AdminConnection:
        """Return a new connection, for the admin client in this slot."""
        made = AdminConnection(self, loop=self._loop, **self._kwargs)
        made.slot = slot
        return made

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, with an error if need be."""
        connection = request.protocol
        assert isinstance(connection, AdminConnection)
        try:
            answer = await self._answer(request, connection.slot)
            if isinstance(answer, Rows):
                return await self._stream(request, answer)
            return _whole(answer.status, _dumped(answer.body))
        except HttpRefused as refused:
            response = _whole(refused.status, refused.body)
            for name, value in refused.headers:
                response.headers.add(name, value)
            return response
        except ConnectionError:
            raise
        except Exception as error:
            self._counters.internal_error(error, "admin")
            return _whole(500, HttpRefused(500, "internal error of the proxy, see its log", "internal").body)

    async def _answer(self, request: web.BaseRequest, slot: AdminSlot) -> Answer:
        peer = slot.peer
        if request.version < HttpVersion10:
            raise HttpRefused(400, "expected a request of http/1.1", "bad_request")
        if request.raw_headers is TOO_LARGE:
            raise HttpRefused(431, AdminConnection.header_refusal, "header", close=True)
        await self._access.check(peer, request.headers)
        route, values = _route_of(request)
        if route.local and not peer.local:
            raise HttpRefused(403, "this path is for clients of the control socket", "authentication")
        body = await _body_of(request)
        slot.request_received()
        values |= _fields(route, body)
        if not route.changes:
            return self._views[route.name](values)
        who = peer.name if peer.local else f"token, from {peer.name}"
        return await self._actions[route.name](values, who)

    async def _stream(self, request: web.BaseRequest, answer: Rows) -> web.StreamResponse:
        response = web.StreamResponse(headers=_headers())
        response.force_close()
        await response.prepare(request)
        try:
            async for piece in _pieces(answer):
                if piece:
                    await response.write(piece)
                # `write` does not wait if the client reads fast, but other connections need the loop between slices.
                await asyncio.sleep(0)
        except ConnectionError:
            raise
        except Exception as error:
            # The status is sent already: cut the answer, so that the client cannot take it for complete JSON.
            self._counters.internal_error(error, "admin")
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
        return response


async def _pieces(answer: Rows) -> AsyncIterator[bytes]:
    head = _dumped(answer.head)
    begin = head[:-1] + (_BETWEEN if answer.head else b"")
    opening, closing, dumped = (b":{", b"}", _fields_of) if answer.named else (b":[", b"]", _dumped)
    yield begin + orjson.dumps(answer.name) + opening
    first = True
    for rows in answer.steps:
        joined = _BETWEEN.join(map(dumped, rows))
        yield joined if first or not joined else _BETWEEN + joined
        first = first and not joined
    tail = _dumped(answer.tail())
    yield closing + (_BETWEEN + tail[1:] if len(tail) > len(b"{}") else tail[1:]) + b"\n"


def _dumped(row: Row) -> bytes:
    return orjson.dumps(row, default=str)


def _fields_of(row: Row) -> bytes:
    return _dumped(row)[1:-1]


def _headers() -> CIMultiDict[str]:
    return CIMultiDict({"Content-Type": JSON, "Server": "pulsar-proxy", "Cache-Control": "no-store"})


def _whole(status: int, body: bytes) -> web.Response:
    response = web.Response(status=status, body=body + b"\n", headers=_headers())
    response.force_close()
    return response


def _route_of(request: web.BaseRequest) -> tuple[Route, dict[str, Any]]:
    """Return the route of a request, and the values in its path and query; raises HttpRefused."""
    path, _, query = request.raw_path.partition("?")
    try:
        segments = checked_segments(path)
    except BadPath as error:
        raise HttpRefused(400, str(error), "bad_request") from error
    route, found = routes.find(request.method, segments)
    if route is None:
        if not found:
            raise HttpRefused(404, "no such path: GET /v1 lists all paths", "no_route")
        allowed = ", ".join(sorted(map(str, found)))
        raise HttpRefused(405, f"this path has {allowed} only", "method", (("Allow", allowed),))
    assert isinstance(found, dict)
    return route, {**found, **_query(route, query)}


def _query(route: Route, query: str) -> dict[str, Any]:
    known, values = {parameter.name: parameter for parameter in route.query}, {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known or name in values:
            raise _unexpected(name, known, "parameter")
        try:
            values[name] = known[name].of_text(text)
        except BadParameter as error:
            raise HttpRefused(400, str(error), "bad_request") from error
    return values


async def _body_of(request: web.BaseRequest) -> bytes:
    if not request.can_read_body:
        return b""
    if request.content_length is not None and request.content_length > LONGEST_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > LONGEST_BODY_BYTES:
            raise _too_large()
    return bytes(body)


def _too_large() -> HttpRefused:
    return HttpRefused(413, f"expected a body of at most {LONGEST_BODY_BYTES} bytes", "bad_request")


def _fields(route: Route, body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HttpRefused(400, "expected a body of JSON, or none", "bad_request") from error
    if not isinstance(found, dict):
        raise HttpRefused(400, "expected a JSON object, or no body", "bad_request")
    known = {parameter.name: parameter for parameter in route.body}
    for name in found:
        if name not in known:
            raise _unexpected(name, known, "field")
    try:
        return {name: known[name].checked(value) for name, value in found.items() if value is not None}
    except BadParameter as error:
        raise HttpRefused(400, str(error), "bad_request") from error


def _unexpected(name: str, known: Mapping[str, Parameter], what: str) -> HttpRefused:
    expected = f"expected {', '.join(known)}, each once" if known else f"this path has no {what}s"
    return HttpRefused(400, f"got {what} {name[:80]!r}, {expected}", "bad_request")
