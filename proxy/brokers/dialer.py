"""Open TCP connections to brokers, with socket options that detect a dead peer."""

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Self, TypeVar

from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.config.config import Config
from proxy.core.errors import BrokerUnavailable, BrokerUnreachable, NoSocket
from proxy.net.tls.failures import TlsFailed

if TYPE_CHECKING:
    from proxy.net.tls.brokers import BrokerTls

_P = TypeVar("_P", bound=asyncio.BaseProtocol)
# The time for an address before the next address is tried in parallel.
HEAD_START_SECONDS: Final = 0.25
# Errors of this machine, for which no broker is to blame.
_OWN_FAULTS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """TCP keep-alive and `TCP_USER_TIMEOUT` of every socket, on both sides of the proxy.

    `receive_buffer_bytes` bounds the kernel's receive buffer (0: the kernel's choice). Setting the option ends
    autotuning, so only request connections have it, whose buffers fill up while reading waits for memory.
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

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the options of a configuration."""
        return cls(
            keep_alive_idle_seconds=config.tcp_keep_alive_idle_seconds,
            keep_alive_interval_seconds=config.tcp_keep_alive_interval_seconds,
            keep_alive_probes=config.tcp_keep_alive_probes,
            user_timeout_millis=config.tcp_user_timeout_millis,
        )


class Dialer:
    """Connects to an address of a broker within `timeout_seconds`.

    IPv6 and IPv4 addresses are tried alternately; an attempt continues when the next address is tried after
    `HEAD_START_SECONDS` (RFC 8305). Every connection begins with `preamble`, before TLS. `on_failed` is called with
    each address to which no connection could be made.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: SocketOptions,
        timeout_seconds: float,
        tls: "BrokerTls | None" = None,
        preamble: bytes = b"",
        on_failed: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._on_failed = on_failed
        self._loop = loop
        self._options = options
        self._tls = tls
        self.timeout_seconds = timeout_seconds
        self._preamble = preamble

    async def connect(self, checked: CheckedTarget, factory: Callable[[], _P], preamble: bytes | None = None) -> _P:
        """Open a connection and return its protocol; `preamble` replaces that of the dialer.

        Raise BrokerUnreachable with the last error, or NoSocket if this proxy is out of sockets.
        """
        target = checked.broker
        deadline = self._loop.time() + self.timeout_seconds
        if target.tls and self._tls is None:
            raise BrokerUnavailable(f"broker {target} is to be reached with TLS, which is off (tlsEnabledWithBroker)")
        sock = await self.open(target, checked.addresses, self.timeout_seconds)
        try:
            async with asyncio.timeout_at(deadline):
                if preamble or (preamble is None and self._preamble):
                    await self._loop.sock_sendall(sock, preamble or self._preamble)
                return await self._adopt(sock, target, factory)
        except TimeoutError as error:
            sock.close()
            raise BrokerUnavailable(_late(target, self.timeout_seconds)) from error
        except TlsFailed as error:
            self._tls_failed(sock)
            sock.close()
            raise BrokerUnavailable(f"cannot connect to broker {target}: TLS handshake: {error.detail}") from error
        except OSError as error:
            sock.close()
            raise _unreachable(target, error) from error
        except BaseException:
            sock.close()
            raise

    async def _adopt(self, sock: socket.socket, target: BrokerAddress, factory: Callable[[], _P]) -> _P:
        """Attach a connected socket to its protocol, after the TLS handshake if there is one."""
        if target.tls and self._tls is not None:
            return await self._tls.connect(sock, target.host, factory)
        _, protocol = await self._loop.create_connection(factory, sock=sock)
        return protocol

    async def open(self, target: BrokerAddress, addresses: Sequence[str], timeout_seconds: float) -> socket.socket:
        """Open a socket to the first address that answers; raise the errors of `connect`."""
        if not addresses:
            raise BrokerUnreachable(f"cannot connect to broker {target}: it has no address")
        try:
            async with asyncio.timeout(timeout_seconds):
                if len(addresses) == 1:
                    return await self._open_one(addresses[0], target.port)
                return await _Race(self._open_one, target.port).run(interleaved(addresses))
        except TimeoutError as error:
            for address in addresses:
                self._on_failed(address)
            raise BrokerUnreachable(_late(target, timeout_seconds)) from error
        except OSError as error:
            raise _unreachable(target, error) from error

    def _tls_failed(self, sock: socket.socket) -> None:
        with suppress(OSError):
            self._on_failed(sock.getpeername()[0])

    async def _open_one(self, address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self._options.apply(sock)
            await self._loop.sock_connect(sock, (address, port))
        except OSError as error:
            sock.close()
            if error.errno not in _OWN_FAULTS:
                self._on_failed(address)
            raise
        except BaseException:
            sock.close()
            raise
        return sock


class _Race:
    """Opens a socket by several attempts; sockets of slower attempts are closed in any case."""

    def __init__(self, attempt: Callable[[str, int], Awaitable[socket.socket]], port: int) -> None:
        self._attempt = attempt
        self._port = port
        self._opened: list[socket.socket] = []
        self._error: OSError | None = None

    async def run(self, addresses: Sequence[str]) -> socket.socket:
        """Return the socket of the first address that answers; raise the last OSError if none does."""
        winner: socket.socket | None = None
        try:
            async with asyncio.TaskGroup() as group:
                running: set[asyncio.Task[None]] = set()
                for position, address in enumerate(addresses):
                    running.add(group.create_task(self._try(address)))
                    last = position == len(addresses) - 1
                    running = await self._look(running, wait_for_all=last)
                    if self._opened:
                        break
                for task in running:
                    task.cancel()
            if self._opened:
                winner = self._opened[0]
                return winner
            assert self._error is not None
            raise self._error
        finally:
            for sock in self._opened:
                if sock is not winner:
                    sock.close()

    async def _look(self, running: set[asyncio.Task[None]], *, wait_for_all: bool) -> set[asyncio.Task[None]]:
        """Wait until an attempt has succeeded, or until it is time for the next attempt."""
        while running and not self._opened:
            timeout = None if wait_for_all else HEAD_START_SECONDS
            _, running = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not wait_for_all:
                break
        return running

    async def _try(self, address: str) -> None:
        try:
            self._opened.append(await self._attempt(address, self._port))
        except OSError as error:
            self._error = error


def interleaved(addresses: Sequence[str]) -> list[str]:
    """Return IPv6 and IPv4 addresses alternately, beginning with the family of the first."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    other = [address for address in addresses if address not in first]
    turns = zip_longest(first, other)
    return [address for turn in turns for address in turn if address is not None]


def _late(target: BrokerAddress, seconds: float) -> str:
    return f"cannot connect to broker {target}: no connection within {seconds:g} s (brokerProxyConnectTimeoutMs)"


def _unreachable(target: BrokerAddress, error: OSError) -> BrokerUnavailable:
    # uvloop sets a text of its own in strerror.
    problem = os.strerror(error.errno).lower() if error.errno else str(error)
    text = f"cannot connect to broker {target}: {problem}"
    return NoSocket(text) if error.errno in _OWN_FAULTS else BrokerUnreachable(text)
