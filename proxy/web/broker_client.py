"""The HTTP client towards brokers: its connections, their buffers, and the addresses they may go to.

Rules: a name is resolved once, by a resolver that checks it, and exactly those addresses are connected to (a second
DNS answer could lead elsewhere); nothing is decoded, no cookie is kept; each connection reads and writes in small
steps, so that a body takes its window and no more.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from proxy.errors import TargetRefused
from proxy.target import BrokerAddress, TargetValidator, resolve
from proxy.web.settings import WebLimits

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

MOST_CONNECTIONS_A_SERVER: Final = 256
MOST_ANSWER_HEADERS: Final = 64
IDLE_SECONDS: Final = 25.0  # below the 30 s after which brokers close an idle connection
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


class _Connector(aiohttp.TCPConnector):
    """Give connections whose write buffer is empty when a write has been waited for."""

    async def connect(
        self, req: "ClientRequest", traces: "list[Trace]", timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            connection.transport.set_write_buffer_limits(high=0)
        return connection


def open_client(
    limits: WebLimits,
    configured_hosts: frozenset[str],
    validator: TargetValidator,
    dns_seconds: int,
) -> aiohttp.ClientSession:
    """Open the client that all requests share."""

    def socket_of(found: Any) -> socket.socket:
        family, kind, protocol, _, _ = found
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        # Before connect(): the kernel doubles it, and what one read takes is never more than it holds.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.buffer_bytes)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * limits.buffer_bytes)
        return made

    connector = _Connector(
        limit=0, limit_per_host=MOST_CONNECTIONS_A_SERVER, keepalive_timeout=IDLE_SECONDS,
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
