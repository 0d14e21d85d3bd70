"""Connections of web clients: what they send is parsed in turns, a piece at a time, within bounds.

Rules: a header is bounded before it is complete. When the time of an iteration of the loop is spent, bytes wait for
their connection's turn, and the socket is not read meanwhile. A piece of bytes that are many lines is small: each chunk
of a body, and each field of a header, costs time. After an answer that ends its connection such bytes are dropped. A
request that asks for a protocol that is not served is its connection's last: aiohttp drops bytes behind it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Final

from aiohttp import StreamReader, web
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.core.addresses import host_network
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.web.http.connection_places import ConnectionPlaces, WebConnection
from proxy.web.http.errors import JSON, HttpRefused
from proxy.web.http.paths import origin_form
from proxy.web.http.pieces import READ_SECONDS, PiecewiseParser, has_many_lines
from proxy.web.http.upgrades import is_websocket

HEADER_REFUSAL: Final = "the request's header is too large (httpMaxRequestHeaderSize)"
# Chunks that are parsed before anybody reads them: aiohttp allows a sixteenth of this number.
READ_AHEAD_BYTES: Final = 4096
# Heads that wait behind the request in work, where aiohttp parses 32: a small head is thirty times as large as objects.
READ_AHEAD_HEADS: Final = 1
# Stands for the fields of a head that is too large.
TOO_LARGE: Final = ((b"", b""),)
_NO_FIELDS: Final[CIMultiDictProxy[str]] = CIMultiDictProxy(CIMultiDict())
# So long takes the first step of the task that reads the rest of a body which nobody wanted.
REST_SECONDS: Final = 0.0003


class HttpConnection(PiecewiseParser, RequestHandler):
    """A client connection with a bound on the whole unfinished header, whose bytes are parsed in its turn.

    aiohttp bounds lines and the number of fields. The parser stops at many small chunks of a body, but goes on inside
    each read of them with all bytes that it was given.
    """

    __slots__ = (
        "_body",
        "_ends",
        "_header_bytes",
        "_held",
        "_last_came",
        "_rests",
        "_tunnel",
        "_waits",
        "accepted_from",
        "opening",
    )

    header_refusal: ClassVar = HEADER_REFUSAL

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # As aiohttp makes its parser, but for the number of heads.
        self._parser = HttpRequestParser(
            self, self._loop, self._read_bufsize, max_line_size=self.max_line_size, max_field_size=self.max_field_size,
            max_headers=self.max_headers, payload_exception=web.RequestPayloadError,
            auto_decompress=kwargs.get("auto_decompress", True), max_msg_queue_size=READ_AHEAD_HEADS,
        )  # fmt: skip
        self._max_msg_queue_size = READ_AHEAD_HEADS
        self._msg_queue_resume_size = READ_AHEAD_HEADS - 1
        self._hold_nothing()
        self._header_bytes = 0
        self._body: StreamReader | None = None
        # Whether an answer was given that is the last.
        self._ends = False
        # Whether the last request that is answered has come, maybe without all of its body.
        self._last_came = False
        # Whether the bytes are those of a WebSocket, which asks for its turns itself.
        self._tunnel = False
        self.accepted_from = "?"
        # The entry in the books that this connection replaces: its own from the time before it spoke HTTP.
        self.opening: WebConnection | None = None

    @property
    def answered(self) -> bool:
        """Whether there was a request before."""
        return self._request_count > 0

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return self._current_request is None and not self._messages

    @property
    def host(self) -> str:
        """The host of the client, or of the balancer that speaks for all."""
        return host_network(self.accepted_from)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(self._manager, HttpServer):
            if self.opening is not None:
                self._manager.places.forget(self.opening)
                self.opening = None
            self._manager.places.waits(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        if isinstance(self._manager, HttpServer):
            self._manager.places.forget(self)
        self._held = b""
        super().connection_lost(exc)

    def cut(self) -> None:
        """End the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def _process_keepalive(self) -> None:
        # Called by aiohttp's clock of a connection that asks for nothing, or whose header does not come.
        ended_before = self._force_close
        super()._process_keepalive()
        if self._force_close and not ended_before and isinstance(self._manager, HttpServer):
            self._manager.counters.disconnected(DisconnectCause.IDLE)

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Called when a WebSocket is open: it gets what its client has sent since it asked for it."""
        held, self._held = self._held, b""
        self._tunnel = True
        super().set_parser(parser, data_received_cb)
        self._read_on()
        super().data_received(held)

    # --- bytes, in turns --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Called when bytes arrive: parse them, now or in this connection's turn."""
        if self._tunnel:
            super().data_received(data)
        elif not data:
            # aiohttp itself calls this, to go on with bytes that it has.
            self._parse(data)
        elif self._close:
            # The connection lingers, or is over.
            return
        elif self._ends and has_many_lines(data):
            self._drop()
        else:
            self._held += data
            if self._waits or self._spent():
                self._rest()
            else:
                self._go_on()

    @property
    def _budget(self) -> LoopBudget | None:
        return self._manager.loop_budget if isinstance(self._manager, HttpServer) else None

    @property
    def _stuck(self) -> bool:
        """Whether nothing can be parsed before a reader or an answer makes room, or an upgrade is decided on."""
        return self._reading_paused or self._buffer_paused or self._upgraded or self._has_all

    @property
    def _has_all(self) -> bool:
        """Whether the last request has come to its end: what follows is never parsed."""
        return self._last_came and self._in_header

    @property
    def _in_header(self) -> bool:
        return self._body is None or self._body.is_eof()

    def _spent(self) -> bool:
        budget = self._budget
        return budget is not None and budget.spent()

    def _parse_piece(self, piece: bytes) -> None:
        budget = self._budget
        if budget is None:
            self._parse(piece)
            return
        began, in_header = budget.now(), self._in_header
        self._parse(piece)
        if not (in_header and self._in_header):
            # The reader of the body works after this.
            budget.charge(max(READ_SECONDS, 2 * (budget.now() - began)))

    def _ask_for_turn(self) -> None:
        if (budget := self._budget) is not None:
            budget.defer_client(self.host, self._take_turn)
        else:
            self._loop.call_soon(self._take_turn)

    def _pause_socket(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _resume_socket(self) -> None:
        super()._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        if self._has_room_again():
            super()._resume_transport_reading()

    def _take_turn(self) -> None:
        self._waits = False
        if self.transport is None or self.transport.is_closing():
            return
        try:
            self._go_on(one_piece=self._budget is not None)
        except Exception as error:
            # As the event loop does for a callback of a socket.
            if isinstance(self._manager, HttpServer):
                self._manager.counters.internal_error(error, "web")
            if self.transport is not None:
                self.transport.abort()

    def _parse(self, data: bytes) -> None:
        """Pass bytes to aiohttp, and refuse a header that grows beyond its bound."""
        before, in_header = self._request_count, self._in_header
        super().data_received(data)
        if self._request_count != before:
            if isinstance(self._manager, HttpServer):
                self._manager.places.got_request(self)
            _keep_less(self._messages, self.max_line_size)
            _use_origin_form(self._messages)
            self._last_came = self._last_came or _end_with_unserved_upgrade(self._messages)
            self._header_bytes = 0
            self._body = body = self._messages[-1][1] if self._messages else None
            if body is not None and not body.is_eof():
                body.on_eof(partial(self._body_has_come, body))
        elif in_header and not self._upgraded:
            self._header_bytes += len(data)
        if self._upgraded and self._message_tail:
            # aiohttp would parse this at once when the upgrade is declined.
            self._held, self._message_tail = self._message_tail + self._held, b""
        if self._header_bytes > self.max_line_size and self.transport is not None and not self._close:
            self.transport.write(_raw(431, "Request Header Fields Too Large", self.header_refusal))
            self.close()
            self.transport.close()

    def _body_has_come(self, body: StreamReader) -> None:
        # Called by the parser, which must not be called in turn.
        if not self._messages or self._messages[-1][1] is not body:
            self._loop.call_soon(self._free_slot)

    def _free_slot(self) -> None:
        """Parse what stands behind a request that was in work before its body had come.

        The parser counts such a request when the body has come, and aiohttp has taken it out of the count by then.
        """
        if self._parser is not None and self.transport is not None:
            self._parser.message_consumed()
            self.data_received(b"")

    # --- answers ----------------------------------------------------------------------------------

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer. The rest of a body that nobody wanted is read after this, in this connection's turn."""
        answer, left = await super().finish_response(request, resp, start_time)
        if isinstance(self._manager, HttpServer) and not self._messages:
            self._manager.waits(self)
        if not self._tunnel:
            self._ends = not answer.keep_alive
            if self._held and self._ends and (self._last_came or has_many_lines(self._held)):
                self._drop()
            elif self._held:
                # Bytes behind an upgrade that was declined have waited for this answer.
                self._rest()
            elif not self._stuck:
                # An upgrade that was parsed in a turn has left the socket unread.
                self._read_on()
            budget = self._budget
            if budget is not None and not left and not request.content.is_eof():
                await budget.client_turn(self.host, REST_SECONDS)
                budget.charge(REST_SECONDS)
        return answer, left

    def _drop(self) -> None:
        """Parse nothing any more: what comes is read and forgotten while the connection lingers."""
        self._held = b""
        self.close()
        self._read_on()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are no HTTP request. Unlike aiohttp, log nothing: anybody could fill the log."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun already")
        if isinstance(exc, LineTooLong):
            refused = HttpRefused(431, self.header_refusal, "header")
        else:
            refused = HttpRefused(status, "not a request of http/1.1", "bad_request")
        response = web.Response(status=refused.status, body=refused.body, content_type=JSON)
        response.headers["Server"] = "pulsar-proxy"
        response.force_close()
        return response


def _keep_less(messages: deque[tuple[Any, Any]], longest_header: int) -> None:
    """Drop the bytes of heads, of which all is there as text, too; of a head that is too large drop all fields."""
    for at, (message, body) in enumerate(messages):
        fields = getattr(message, "raw_headers", ())
        if not fields or fields is TOO_LARGE:
            continue
        if len(message.path) + _size_of(fields) > longest_header:
            messages[at] = message._replace(raw_headers=TOO_LARGE, headers=_NO_FIELDS), body
        else:
            messages[at] = message._replace(raw_headers=()), body


def _size_of(fields: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the bytes of the text of fields: three texts for a name, up to four bytes for a letter of a value."""
    return sum(3 * len(name) + len(value) * (1 if value.isascii() else 4) + 4 for name, value in fields)


def _use_origin_form(messages: deque[tuple[Any, Any]]) -> None:
    """Replace the absolute form of the target by the path, in the requests that wait on a connection."""
    for at, (message, body) in enumerate(messages):
        target = getattr(message, "path", "/")
        if not target.startswith("/") and (path := origin_form(target, message.headers.get("Host", ""))):
            messages[at] = message._replace(path=path, url=URL(path, encoded=True)), body


def _end_with_unserved_upgrade(messages: deque[tuple[Any, Any]]) -> bool:
    """Make the first request that asks for another protocol than WebSocket the last; return whether there is one.

    llhttp stops behind such a request, and aiohttp forgets what came with its end: the next bytes would be read as
    another request than the client has sent. Java's HttpClient asks for h2c, so the request itself is answered.
    """
    for at, (message, body) in enumerate(messages):
        if getattr(message, "upgrade", False) and not is_websocket(message.headers):
            messages[at] = message._replace(should_close=True), body
            while len(messages) > at + 1:
                messages.pop()
            return True
    return False


class HttpServer(web.Server):
    """Creates an `HttpConnection` for each accepted socket, and ends connections so that others find room.

    There are at most `most_connections`. `options` are aiohttp's; its bound on a line bounds the whole header, too.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        counters: Counters,
        loop_budget: LoopBudget | None,
        most_connections: int,
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self.counters = counters
        self.loop_budget = loop_budget
        self.places: ConnectionPlaces[WebConnection] = ConnectionPlaces(most_connections)

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, loop=self._loop, **self._kwargs)

    def asks(self, connection: HttpConnection) -> None:
        """Record that nothing is passed on for a connection that has a request, or an answer to take."""
        # The transport is None once the connection is lost.
        if connection.transport is not None:
            self.places.asks(connection)

    def waits(self, connection: HttpConnection) -> None:
        """Record that a connection has its answer, and waits for another request."""
        if connection.transport is not None:
            self.places.waits(connection)

    def take_place(self, connection: HttpConnection) -> bool:
        """Record that a connection holds a place, maybe that of another one, which ends; return False without one."""
        if self.places.full and not self._end(self.places.victim_for(connection.host)):
            return False
        self.places.take(connection)
        return True

    def end_idle(self) -> None:
        """End the connections that have had an answer and ask for nothing; others have a request on its way."""
        for connection in list(self.connections):
            if isinstance(connection, HttpConnection) and connection.idle and connection._request_count:
                self._end(connection)

    def make_room(self, host: str) -> bool:
        """End a connection for a newcomer of a host; return False if the newcomer has to go."""
        return self._end(self.places.victim_for_newcomer(host))

    def _end(self, connection: WebConnection | None) -> bool:
        if connection is None:
            return False
        self.places.forget(connection)
        connection.cut()
        return True


def _raw(status: int, phrase: str, reason: str) -> bytes:
    body = HttpRefused(status, reason, "header").body
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Date: {date}\r\nServer: pulsar-proxy\r\nConnection: close\r\n\r\n".encode() + body
