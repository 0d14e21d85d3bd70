"""Open TCP connections to brokers, with the socket options that make a dead peer show itself."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from proxy.errors import BrokerUnavailable
from proxy.target import BrokerAddress
from proxy.tls.brokers import BrokerTls
from proxy.tls.failures import TlsFailed

_P = TypeVar("_P", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """TCP keep-alive and `TCP_USER_TIMEOUT` of every socket, on both sides of the proxy.

    `receive_buffer_bytes` bounds the kernel's receive buffer (0: the kernel's choice). It ends autotuning, so only
    request connections have it: there it bounds what piles up while reading waits for memory.
    """

    keep_alive_idle_seconds: int
    keep_alive_interval_seconds: int
    keep_alive_probes: int
    user_timeout_millis: int
    receive_buffer_bytes: int = 0

    def apply(self, sock: socket.socket) -> None:
        """Set the options on `sock`."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.keep_alive_idle_seconds:
            self._keep_alive(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.user_timeout_millis)
        if self.receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)

    def _keep_alive(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, self.keep_alive_idle_seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, self.keep_alive_interval_seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, self.keep_alive_probes)


class Dialer:
    """Connect to one of a broker's addresses within `timeout_seconds`, trying them in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: SocketOptions,
        timeout_seconds: float,
        tls: BrokerTls | None = None,
    ) -> None:
        self._loop = loop
        self._options = options
        self._tls = tls
        self.timeout_seconds = timeout_seconds

    async def connect(self, target: BrokerAddress, addresses: Sequence[str], factory: Callable[[], _P]) -> _P:
        """Open a connection and give its protocol; raises BrokerUnavailable with the last error."""
        problem: str = "it has no address"
        deadline = self._loop.time() + self.timeout_seconds
        for position, address in enumerate(addresses):
            # An address that swallows packets must leave time for those behind it.
            now = self._loop.time()
            share = (deadline - now) / (len(addresses) - position)
            try:
                async with asyncio.timeout_at(now + share):
                    return await self._connect_address(address, target, factory)
            except TimeoutError:
                problem = f"no connection within {self.timeout_seconds:g} s (brokerProxyConnectTimeoutMs)"
            except TlsFailed as error:
                problem = f"TLS handshake: {error.detail}"
            except OSError as error:
                # uvloop puts its own words into strerror.
                problem = os.strerror(error.errno).lower() if error.errno else str(error)
        raise BrokerUnavailable(f"cannot connect to broker {target}: {problem}")

    async def _connect_address(self, address: str, target: BrokerAddress, factory: Callable[[], _P]) -> _P:
        if target.tls and self._tls is None:
            raise BrokerUnavailable(f"broker {target} is to be reached with TLS, which is off (tlsEnabledWithBroker)")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self._options.apply(sock)
            await self._loop.sock_connect(sock, (address, target.port))
            if target.tls and self._tls is not None:
                return await self._tls.connect(sock, target.host, factory)
            _, protocol = await self._loop.create_connection(factory, sock=sock)
        except BaseException:
            sock.close()
            raise
        return protocol
