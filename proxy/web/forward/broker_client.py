"""The HTTP client towards brokers: its connections, their buffers, and the addresses they may go to.

Rules: a name is resolved once, by a resolver that checks it, and exactly those addresses are connected to (a second
DNS answer could lead elsewhere); nothing is decoded, no cookie is kept; each connection reads and writes in small
steps, so that a body takes its window and no more; one that is given up is gone at once, whatever its peer reads.
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
    """Resolve configured hosts freely, all others only where clients may be led."""

    def __init__(self, configured_hosts: frozenset[str], validator: TargetValidator) -> None:
        self._configured = configured_hosts
        self._validator = validator

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Give the addresses that may be connected to; raises OSError, as a resolver must."""
        target = BrokerAddress(host, port)
        try:
            own = host.lower() in self._configured
            addresses = await (resolve(target) if own else self._validator.resolve(target))
        except TargetRefused as refused:
            raise OSError(str(refused)) from refused
        return [_result(host, address, port) for address in addresses]

    async def close(self) -> None:
        """Own nothing."""


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)


class NoConnectionFree(ProxyError):
    """All connections to a server were in use for as long as a request waits."""


class _Connection(ResponseHandler):
    """One connection to a server, never closed gracefully: a request that was given up has no end to wait for."""

    def close(self) -> None:
        """Close at once."""
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size():
            reset(transport)
        # Without a TLS shutdown, which would wait for its answer.
        self.abort()


class _Connector(aiohttp.TCPConnector):
    """Give connections whose write buffer is empty when a write has been waited for.

    Who waits for one has uploads ended that keep it for nothing.
    """

    def __init__(self, uploads: Uploads, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("partial[ResponseHandler]", partial(_Connection, loop=self._loop))
        self._uploads = uploads
        self._wanted: Counter[Server] = Counter()
        self._looked_after: set[Server] = set()

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
        if server not in self._looked_after:
            self._looked_after.add(server)
            self._loop.call_soon(self._make_room, server)
        try:
            yield
        finally:
            self._wanted[server] -= 1

    def _make_room(self, server: Server) -> None:
        """Look once a second, for all who wait."""
        if most := self._wanted[server]:
            self._uploads.make_room(server, most, self._loop.time())
            self._loop.call_later(_ROOM_SECONDS, self._make_room, server)
        else:
            del self._wanted[server]
            self._looked_after.discard(server)


def socket_for(limits: WebLimits, family: int) -> socket.socket:
    """Make a socket for a connection to a web service."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    limits.sockets.apply(made)
    # Before connect(): the kernel doubles it, and what one read takes is never more than it holds.
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
    """Open the client that all requests share."""

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


async def close_client(client: aiohttp.ClientSession) -> None:
    """Close all connections, and let the loop close their sockets."""
    await client.close()
    await asyncio.sleep(0)


def hosts_of(urls: Sequence[str]) -> frozenset[str]:
    """Give the host names of URLs, lower case."""
    from yarl import URL

    return frozenset(host.lower() for url in urls if (host := URL(url).host))
