"""The HTTP client towards brokers: its connections, their buffers, and the addresses that it may connect to.

Rules: a name is resolved once, by a resolver that checks the addresses, and the client connects to exactly those (a
second DNS answer could lead elsewhere). No body is decoded and no cookie is kept. Each connection reads and writes in
small steps, so a body never takes more than its window. An abandoned connection is closed at once.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler

from proxy.brokers.target import BrokerAddress, TargetValidator, resolve
from proxy.core.errors import ProxyError, TargetRefused
from proxy.web.forward.settings import WebLimits
from proxy.web.forward.uploads import Server, Uploads
from proxy.web.http.endings import reset

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest, ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

MOST_CONNECTIONS_A_SERVER: Final = 256
MOST_ANSWER_HEADERS: Final = 64
IDLE_SECONDS: Final = 25.0  # below the 30 s after which brokers close an idle connection
WAIT_SECONDS: Final = 5.0
_ROOM_SECONDS: Final = 1.0
_NOT_OURS_TO_ADD: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


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


class _Connection(ResponseHandler):
    """A connection to a server that is never closed gracefully: nobody waits for the end of an abandoned request."""

    def close(self) -> None:
        """Close at once."""
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size():
            reset(transport)
        # `abort` skips the TLS shutdown, which would wait for the peer's answer.
        self.abort()


class _Connector(aiohttp.TCPConnector):
    """Makes connections whose write buffer is empty after a drained write.

    While a request waits for a connection, the slowest uploads to the same server are ended.
    """

    def __init__(self, uploads: Uploads, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("partial[ResponseHandler]", partial(_Connection, loop=self._loop))
        self._uploads = uploads
        self._wanted: Counter[Server] = Counter()
        self._making_room: set[Server] = set()

    async def connect(
        self, req: "ClientRequest", traces: "list[Trace]", timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            connection.transport.set_write_buffer_limits(high=0)
        return connection

    async def _wait_for_available_connection(self, key: "ConnectionKey", traces: "list[Trace]") -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                with self._wanting((key.host, key.port)):
                    await super()._wait_for_available_connection(key, traces)
        except TimeoutError as error:
            raise NoConnectionFree(
                f"all {self.limit_per_host} connections to {key.host}:{key.port} are in use, which is all there may be"
            ) from error

    @contextmanager
    def _wanting(self, server: Server) -> Iterator[None]:
        self._wanted[server] += 1
        if server not in self._making_room:
            self._making_room.add(server)
            self._loop.call_soon(self._make_room, server)
        try:
            yield
        finally:
            self._wanted[server] -= 1

    def _make_room(self, server: Server) -> None:
        """End slow uploads, once a second while requests wait for `server`."""
        if most := self._wanted[server]:
            self._uploads.make_room(server, most, self._loop.time())
            self._loop.call_later(_ROOM_SECONDS, self._make_room, server)
        else:
            del self._wanted[server]
            self._making_room.discard(server)


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
    uploads: Uploads,
) -> aiohttp.ClientSession:
    """Open the aiohttp session that all requests share."""

    def socket_of(found: Any) -> socket.socket:
        return socket_for(limits, found[0])

    connector = _Connector(
        uploads, limit=0, limit_per_host=MOST_CONNECTIONS_A_SERVER, keepalive_timeout=IDLE_SECONDS,
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
        max_line_size=limits.max_header_bytes,
        max_field_size=limits.max_header_bytes,
        max_headers=MOST_ANSWER_HEADERS,
    )


def hosts_of(urls: Sequence[str]) -> frozenset[str]:
    """Return the host names of URLs in lower case."""
    from yarl import URL

    return frozenset(host.lower() for url in urls if (host := URL(url).host))
