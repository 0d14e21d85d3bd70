"""The HTTP client towards brokers: its connections, their buffers, and the addresses that it may connect to.

Rules: a name is resolved once, by a resolver that checks the addresses, and the client connects to exactly those (a
second DNS answer could lead elsewhere). No body is decoded and no cookie is kept. Each connection reads and writes in
small steps, in turns with all other work of the loop, so a body never takes more than its window. An abandoned
connection is closed at once, and so is one that brings more than the answer that was asked for: nobody gets the answer
to another request, and nothing is kept of a server that goes on by itself. The connections to a server that are in use
are bounded, and requests wait for one in turns by key (`proxy.web.forward.places`).
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import LineTooLong

from limiter.clock import Clock
from limiter.errors import PermitAcquireError
from proxy.brokers.target import BrokerAddress, TargetValidator, resolve
from proxy.config.config import Config
from proxy.core.errors import ProxyError, TargetRefused
from proxy.core.log import Logger
from proxy.core.loop_budget import LoopBudget
from proxy.net.write_watch import WriteLimits
from proxy.web.forward.places import Place, SharedPlaces
from proxy.web.forward.settings import MOST_CONNECTIONS_A_SERVER, WebLimits
from proxy.web.forward.visits import Visit
from proxy.web.http.endings import reset
from proxy.web.http.pieces import READ_SECONDS, PiecewiseParser, piece_bytes

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from aiohttp.tracing import Trace

MOST_ANSWER_HEADERS: Final = 64
IDLE_SECONDS: Final = 25.0  # below the 30 s after which brokers close an idle connection
WAIT_SECONDS: Final = 5.0
# The books of so many servers are kept while nobody asks them.
_IDLE_SERVERS: Final = 16
_END_OF_HEADER: Final = b"\r\n\r\n"
_SWITCHING: Final = HTTPStatus.SWITCHING_PROTOCOLS
_NOT_OURS_TO_ADD: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


def fault_of(status: int, transfer_codings: Sequence[str]) -> str | None:
    """Return why an answer must not be passed on, None if it may be."""
    if status < HTTPStatus.OK:
        return f"the broker answered with status {status}, which is no answer to this request"
    if transfer_codings and [value.strip().lower() for value in transfer_codings] != ["chunked"]:
        return "the broker's answer has another transfer-encoding than chunked"
    return None


def header_fault(error: BaseException) -> str | None:
    """Return why a request failed, if the header of its answer was too large."""
    large = isinstance(error.__cause__, LineTooLong)
    return "the header of the broker's answer is too large (httpMaxResponseHeaderSize)" if large else None


async def read_at_most(content: aiohttp.StreamReader, most_bytes: int) -> bytes:
    """Return the first bytes of an answer, all of them if there are no more."""
    found = bytearray()
    while len(found) < most_bytes and (piece := await content.read(most_bytes - len(found))):
        found += piece
    return bytes(found)


class CheckedResolver(AbstractResolver):
    """Resolves configured hosts without a check, all others only to addresses that clients may reach."""

    def __init__(self, configured_hosts: frozenset[str], validator: TargetValidator) -> None:
        self._configured = configured_hosts
        self._validator = validator

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses that the client may connect to; raises OSError, as aiohttp expects."""
        target = BrokerAddress(host, port)
        try:
            own = host.lower() in self._configured
            addresses = await (resolve(target) if own else self._validator.resolve(target))
        except TargetRefused as refused:
            raise OSError(str(refused)) from refused
        return [_result(host, address, port) for address in addresses]

    async def close(self) -> None:
        """Skip: the resolver has no resources."""


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)


class NoConnectionFree(ProxyError):
    """All connections to a server were in use for `WAIT_SECONDS`."""


class BrokerAnswers(PiecewiseParser, ResponseHandler):
    """A connection to a server, whose answers are parsed a piece at a time, in turns with other work of the loop.

    A read may hold 10,000 chunks of a byte. The connection is never closed gracefully: nobody waits for the end of an
    abandoned request. A server may answer early and close while the body of its request is on its way: what came before
    a write failed is an answer.

    aiohttp keeps what follows an answer for the next request, without bound. So each byte behind the end of an answer
    ends the connection, whether a request still uses it or it rests. And aiohttp bounds each field of a header, but not
    the header: `longest_header` does.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        budget: LoopBudget,
        longest_header: int = Config.http_max_response_header_size.default,
    ) -> None:
        super().__init__(loop)
        self._hold_nothing()
        self._budget = budget
        self._longest_header = longest_header
        self._header_bytes = 0
        # The body of the answer that was begun last.
        self._body: StreamReader | None = None
        # The end of what was parsed of its header.
        self._header_tail = b""

    @property
    def should_close(self) -> bool:
        """Whether no other request may use the connection; bytes that are left belong to no answer."""
        return bool(self._held) or super().should_close

    @property
    def may_be_used(self) -> bool:
        """Whether the connection is new, or has brought nothing since its answer: what its kernel has counts, too."""
        return self._body is None or not (self.should_close or self.transport is None or has_input(self.transport))

    def expect_answer(self) -> None:
        """Begin with the next request."""
        self._body = None
        self._header_tail = b""
        self._header_bytes = 0

    @property
    def _is_answered(self) -> bool:
        return self._body is not None and self._body.is_eof()

    def close(self) -> None:
        """Close at once."""
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size():
            reset(transport)
        # `abort` skips the TLS shutdown, which would wait for the peer's answer.
        self.abort()

    def abort(self) -> None:
        """Close at once, and forget what was read."""
        self._held = b""
        super().abort()

    def eof_received(self) -> None:
        """Called at the server's FIN: whatever it leaves unread can change nothing, so do not wait until it is read."""
        super().eof_received()
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None and self.transport is not None and not self._is_answered:
            self._parse_last(self.transport)
        self._held = b""
        # Break the cycle with the reader.
        self._body = None
        super().connection_lost(exc)

    def _parse_last(self, transport: asyncio.BaseTransport) -> None:
        """Parse what came before the connection broke, as far as aiohttp has room: what waits here, and in the kernel.

        An event loop reads no more after a failed write, while the kernel keeps what came before a reset.
        """
        self._held += _unread(transport)
        try:
            while self._held and not self._stuck and not self._is_answered:
                size = piece_bytes(self._held)
                piece, self._held = self._held[:size], self._held[size:]
                self._parse_piece(piece)
        except Exception as error:
            self._loop.call_exception_handler({"message": "parsing a broker's answer failed", "exception": error})

    def data_received(self, data: bytes) -> None:
        """Called when bytes arrive: parse them, now or in this connection's turn."""
        if not data:
            # aiohttp itself calls this, to go on with bytes that it has.
            super().data_received(data)
            return
        if self._is_answered:
            self.abort()
            return
        self._held += data
        if self._waits or self._budget.spent():
            self._rest()
        else:
            self._go_on()

    def feed_data(self, data: "tuple[RawResponseMessage, StreamReader]", size: int = 0) -> None:
        """Called for each header: pass the answer on, and those that go before it (1xx); drop what follows."""
        if self._body is None:
            message, body = data
            # aiohttp takes every other status for that of the answer.
            if not HTTPStatus.CONTINUE <= message.code < HTTPStatus.OK or message.code == _SWITCHING:
                self._body = body
                if fault_of(message.code, message.headers.getall("Transfer-Encoding", ())) is not None:
                    self.force_close()
            super().feed_data(data, size)

    @property
    def _stuck(self) -> bool:
        return self._reading_paused or self._buffer_paused

    def _parse_piece(self, piece: bytes) -> None:
        began = self._budget.now()
        if self._body is None:
            piece = self._parse_header(piece)
        if piece:
            self._parse_rest(piece)
        # The reader of the answer works after this.
        self._budget.charge(max(READ_SECONDS, 2 * (self._budget.now() - began)))

    def _parse_header(self, piece: bytes) -> bytes:
        """Parse the end of a header by itself, if a piece has it; return what is left to parse now.

        The parser forgets an answer without a body (204, or to a HEAD) if it is given more than that at once.
        """
        seen = self._header_tail + piece
        at = seen.find(_END_OF_HEADER)
        end = at + len(_END_OF_HEADER) - len(self._header_tail)
        self._header_bytes += len(piece) if at < 0 else end
        if self._header_bytes > self._longest_header:
            # The request hears of it, and closes the connection.
            self.set_exception(LineTooLong(b"header", self._longest_header))
            return b""
        if at < 0 or end >= len(piece):
            self._header_tail = seen[1 - len(_END_OF_HEADER) :]
            return piece
        self._header_tail = b""
        super().data_received(piece[:end])
        if self._body is not None and not self._is_answered:
            return piece[end:]
        self._held = piece[end:] + self._held
        if self._is_answered:
            self.abort()
        return b""

    def _parse_rest(self, piece: bytes) -> None:
        held_back = not self._held and len(piece) > 1
        if held_back:
            # The parser does not say where in its bytes an answer ended. If that was before the last, some are left.
            piece, self._held = piece[:-1], piece[-1:]
        super().data_received(piece)
        if self._held and self._is_answered:
            self.abort()
        elif self._held and held_back and not self._stuck:
            last, self._held = self._held, b""
            super().data_received(last)

    def _spent(self) -> bool:
        return self._budget.spent()

    def _ask_for_turn(self) -> None:
        self._budget.defer_answers(self._take_turn)

    def _take_turn(self) -> None:
        self._waits = False
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        try:
            self._go_on()
        except Exception as error:
            # As the event loop does for a callback of a socket; the request hears of the end.
            self._loop.call_exception_handler({"message": "parsing a broker's answer failed", "exception": error})
            transport.abort()

    def _pause_socket(self) -> None:
        self._pause_transport_reading()

    def _resume_socket(self) -> None:
        super()._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        if self._has_room_again():
            super()._resume_transport_reading()


class _Connector(aiohttp.TCPConnector):
    """Makes connections whose write buffer is empty after a drained write."""

    def __init__(self, budget: LoopBudget, longest_header: int, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("partial[ResponseHandler]", partial(BrokerAnswers, self._loop, budget, longest_header))

    async def connect(
        self, req: "ClientRequest", traces: "list[Trace]", timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        # A connection that may not be used has left the pool by now.
        while isinstance(connection.protocol, BrokerAnswers) and not connection.protocol.may_be_used:
            connection.close()
            connection = await super().connect(req, traces, timeout)
        if isinstance(connection.protocol, BrokerAnswers):
            connection.protocol.expect_answer()
        if connection.transport is not None:
            write_at_once(connection.transport)
        return connection


def connector_of_one(budget: LoopBudget, tls: Any) -> aiohttp.TCPConnector:
    """Return a connector for one question at a time, whose answers are parsed in the time of `budget`."""
    return _Connector(budget, Config.http_max_response_header_size.default, ssl=tls, limit=1)


def write_at_once(transport: asyncio.WriteTransport) -> None:
    """Make a drained write one that has left user space, but for what TLS has sealed already.

    With a mark of 0 uvloop never goes on after a write over TLS. TLS reads no further ahead either: uvloop would keep
    up to 256 KiB of ciphertext for a reader that stands still.
    """
    transport.set_write_buffer_limits(high=1)
    # Only transports with TLS have it.
    if (limit_reads := getattr(transport, "set_read_buffer_limits", None)) is not None:
        limit_reads(high=1)


def _unread(transport: asyncio.BaseTransport) -> bytes:
    """Return what the kernel has of a connection that is about to be closed; nothing of one with TLS."""
    own = transport.get_extra_info("socket")
    if own is None or transport.get_extra_info("ssl_object") is not None:
        return b""
    try:
        with socket.socket(fileno=os.dup(own.fileno())) as copy:
            copy.setblocking(False)
            return copy.recv(own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
    except OSError:
        return b""


async def hear(transport: asyncio.Transport | None) -> None:
    """Wait until the loop has read what a server has sent over TLS: `_unread` cannot, should the next write fail."""
    sealed = transport is not None and transport.get_extra_info("ssl_object") is not None
    if transport is not None and sealed and not transport.is_closing() and has_input(transport):
        await asyncio.sleep(0)


def has_input(transport: asyncio.BaseTransport) -> bool:
    """Return whether the kernel has bytes of a connection that nobody has read yet, or its end."""
    waiting = select.poll()
    waiting.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(waiting.poll(0))


class ServerConnections:
    """The connections to each server that are in use, at most `MOST_CONNECTIONS_A_SERVER`."""

    def __init__(self, clock: Clock, rates: Callable[[], WriteLimits], log: Logger) -> None:
        self._clock = clock
        self._rates = rates
        self._log = log
        self._servers: dict[tuple[str, int | None], SharedPlaces] = {}

    async def enter(self, host: str, port: int | None, guest: Visit, *, list_seconds: float | None = None) -> Place:
        """Wait for a connection to a server that `guest` may use until it releases its place; raises NoConnectionFree.

        A topic list waits for `list_seconds`, in the line of lists. A cancelled call holds no place.
        """
        places = self._servers.get((host, port))
        if places is None:
            self._drop_idle()
            places = SharedPlaces(
                f"connections to {host}:{port}", MOST_CONNECTIONS_A_SERVER, self._clock, self._rates, self._log
            )
            self._servers[host, port] = places
        try:
            if list_seconds is not None:
                return await places.enter(guest, list_seconds, for_list=True)
            return await places.enter(guest, WAIT_SECONDS)
        except PermitAcquireError as error:
            raise NoConnectionFree(
                f"all {error.limit} {error.limiter} are in use, which is all there may be"
            ) from error

    def _drop_idle(self) -> None:
        if len(self._servers) >= _IDLE_SERVERS:
            self._servers = {server: places for server, places in self._servers.items() if not places.idle}


def socket_for(limits: WebLimits, family: int) -> socket.socket:
    """Return a new socket, with the buffer sizes of `limits`, for a connection to a web service."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    limits.sockets.apply(made)
    # Set the sizes before connect(). The kernel doubles them, and a read returns at most the receive buffer.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.buffer_bytes)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * limits.buffer_bytes)
    return made


def open_client(
    limits: WebLimits,
    configured_hosts: frozenset[str],
    validator: TargetValidator,
    dns_seconds: int,
    budget: LoopBudget,
) -> aiohttp.ClientSession:
    """Open the aiohttp session that all requests share; answers are parsed in the time of `budget`."""

    def socket_of(found: Any) -> socket.socket:
        return socket_for(limits, found[0])

    connector = _Connector(
        budget, limits.max_answer_header_bytes, limit=0, limit_per_host=0, keepalive_timeout=IDLE_SECONDS,
        resolver=CheckedResolver(configured_hosts, validator), ttl_dns_cache=dns_seconds,
        socket_factory=socket_of,
    )  # fmt: skip
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_NOT_OURS_TO_ADD,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds),
        read_bufsize=limits.buffer_bytes // 2,
        max_line_size=limits.max_answer_header_bytes,
        max_field_size=limits.max_answer_header_bytes,
        max_headers=MOST_ANSWER_HEADERS,
    )


def hosts_of(urls: Sequence[str]) -> frozenset[str]:
    """Return the host names of URLs in lower case."""
    from yarl import URL

    return frozenset(host.lower() for url in urls if (host := URL(url).host))
