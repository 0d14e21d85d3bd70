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

from limiter.errors import PermitAcquireError
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.config.config import Config
from proxy.core.errors import OWN_FAULTS, BrokerUnavailable, BrokerUnreachable, NoSocket
from proxy.net.dial_places import SOCKETS_A_DIAL, DialPlaces
from proxy.net.tls.failures import TlsFailed

if TYPE_CHECKING:
    from proxy.net.tls.brokers import BrokerTls

_P = TypeVar("_P", bound=asyncio.BaseProtocol)
# The time for an address before the next address is tried in parallel.
HEAD_START_SECONDS: Final = 0.25
# Addresses of a known broker that are tried at a time: each has two seconds, in which a SYN that is lost is sent again.
ATTEMPTS_AT_ONCE: Final = 8
# A peer that is gone without a word shows itself after 90 s: sooner costs packets for each idle connection, and later
# is too late for whoever waits for a place.
_KEEP_ALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """TCP keep-alive and `TCP_USER_TIMEOUT` of every socket, on both sides of the proxy.

    `receive_buffer_bytes` bounds the kernel's receive buffer (0: the kernel's choice). Setting the option ends
    autotuning, so only request connections have it, whose buffers fill up while reading waits for memory. The option
    has to be set before the connection is made.
    """

    user_timeout_millis: int
    receive_buffer_bytes: int = 0

    def apply(self, sock: socket.socket) -> None:
        """Set the options on `sock`; the kernel tells the end of a Unix socket's other end by itself."""
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.user_timeout_millis)
        if self.receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the options of a configuration."""
        return cls(user_timeout_millis=config.tcp_user_timeout_millis)


class Dialer:
    """Connects to an address of a broker within `timeout_seconds`.

    IPv6 and IPv4 addresses are tried alternately; an attempt continues when the next address is tried after
    `HEAD_START_SECONDS` (RFC 8305), but a few at a time: then the oldest ends. A dial to a host that a client made up
    needs a place of `places` and tries `SOCKETS_A_DIAL` addresses at a time. Every connection begins with `preamble`,
    before TLS. `on_failed` is called with the target and each of its addresses to which no connection could be made.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: SocketOptions,
        timeout_seconds: float,
        tls: "BrokerTls | None" = None,
        preamble: bytes = b"",
        on_failed: Callable[[BrokerAddress, str], None] = lambda target, address: None,
        places: DialPlaces | None = None,
    ) -> None:
        self._on_failed = on_failed
        self._places = places
        self._loop = loop
        self.options = options
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
        sock = await self._open_checked(checked, deadline)
        if preamble is None:
            preamble = self._preamble
        return await self._begin(sock, target, factory, preamble, deadline, made_up=checked.made_up_by is not None)

    async def _begin(
        self,
        sock: socket.socket,
        target: BrokerAddress,
        factory: Callable[[], _P],
        preamble: bytes,
        deadline: float,
        *,
        made_up: bool = False,
    ) -> _P:
        """Send the preamble and attach a connected socket to its protocol; raise the errors of `connect`."""
        try:
            # Otherwise nothing is waited for.
            async with asyncio.timeout_at(deadline if preamble or target.tls else None):
                if preamble:
                    await self._loop.sock_sendall(sock, preamble)
                return await self._adopt(sock, target, factory, made_up=made_up)
        except TimeoutError as error:
            sock.close()
            raise BrokerUnavailable(_late(target, self.timeout_seconds)) from error
        except TlsFailed as error:
            self._tls_failed(sock, target)
            sock.close()
            raise BrokerUnavailable(f"cannot connect to broker {target}: TLS handshake: {error.detail}") from error
        except OSError as error:
            sock.close()
            raise _unreachable(target, error) from error
        except BaseException:
            sock.close()
            raise

    async def _adopt(
        self, sock: socket.socket, target: BrokerAddress, factory: Callable[[], _P], *, made_up: bool
    ) -> _P:
        """Attach a connected socket to its protocol, after the TLS handshake if there is one."""
        if target.tls and self._tls is not None:
            return await self._tls.connect(sock, target.host, factory, made_up=made_up)
        _, protocol = await self._loop.create_connection(factory, sock=sock)
        return protocol

    async def _open_checked(self, checked: CheckedTarget, deadline: float) -> socket.socket:
        """Open a socket to a target; to a host that a client made up in the turn of the client's network."""
        target, network = checked.broker, checked.made_up_by
        if network is None or self._places is None:
            return await self.open(target, checked.addresses, self.timeout_seconds)
        try:
            place = await self._places.enter(network, self.timeout_seconds)
        except PermitAcquireError as error:
            problem = "too many connections to hosts that clients name are being opened"
            raise BrokerUnreachable(f"cannot connect to broker {target}: {problem}") from error
        try:
            with place:
                async with asyncio.timeout_at(None) as clock:
                    place.ends_by(clock.reschedule)
                    seconds = max(0.0, deadline - self._loop.time())
                    return await self.open(target, checked.addresses, seconds, SOCKETS_A_DIAL)
        except TimeoutError as error:
            problem = "given up for clients of other addresses that wait"
            raise BrokerUnreachable(f"cannot connect to broker {target}: {problem}") from error

    async def open(
        self, target: BrokerAddress, addresses: Sequence[str], timeout_seconds: float, at_once: int = ATTEMPTS_AT_ONCE
    ) -> socket.socket:
        """Open a socket to the first address that answers, `at_once` at a time; raise the errors of `connect`."""
        if not addresses:
            raise BrokerUnreachable(f"cannot connect to broker {target}: it has no address")
        try:
            async with asyncio.timeout(timeout_seconds):
                if len(addresses) == 1:
                    return await self._open_one(addresses[0], target)
                return await _Race(self._open_one, target, at_once).run(interleaved(addresses))
        except TimeoutError as error:
            for address in addresses:
                self._on_failed(target, address)
            raise BrokerUnreachable(_late(target, timeout_seconds)) from error
        except OSError as error:
            raise _unreachable(target, error) from error

    async def look(self, target: BrokerAddress, addresses: Sequence[str]) -> None:
        """Open a connection, with the TLS handshake if there is one, and close it; raise the errors of `connect`."""
        deadline = self._loop.time() + self.timeout_seconds
        sock = await self.open(target, addresses, self.timeout_seconds)
        if not target.tls or self._tls is None:
            sock.close()
            return
        (await self._begin(sock, target, _Looked, self._preamble, deadline)).end()

    def _tls_failed(self, sock: socket.socket, target: BrokerAddress) -> None:
        with suppress(OSError):
            self._on_failed(target, sock.getpeername()[0])

    async def _open_one(self, address: str, target: BrokerAddress) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self.options.apply(sock)
            await connect_socket(self._loop, sock, (address, target.port))
        except OSError as error:
            sock.close()
            if error.errno not in OWN_FAULTS:
                self._on_failed(target, address)
            raise
        except BaseException:
            sock.close()
            raise
        return sock


async def connect_socket(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: tuple[str, int]) -> None:
    """Connect a socket that does not block to a numeric address; raise OSError.

    uvloop's `sock_connect` has a thread of libuv's pool look even such an address up: more work than the connection,
    and a wait for one of four threads.
    """
    error = sock.connect_ex(address)
    if error == errno.EINPROGRESS:
        connected = loop.create_future()
        loop.add_writer(sock.fileno(), _end_wait, connected)
        try:
            await connected
        finally:
            loop.remove_writer(sock.fileno())
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _end_wait(waiter: asyncio.Future[None]) -> None:
    # The waiter may have left, and a socket that can be written says so until then.
    if not waiter.done():
        waiter.set_result(None)


class _Looked(asyncio.BufferedProtocol):
    """The end of a connection that only a probe has made: what the broker sends is dropped."""

    def __init__(self) -> None:
        self._transport: asyncio.BaseTransport | None = None
        self._dropped = bytearray(1024)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the handshake is done."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room for bytes that are dropped."""
        return memoryview(self._dropped)

    def buffer_updated(self, nbytes: int) -> None:
        """Drop the bytes."""

    def end(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


class _Race:
    """Opens a socket by several attempts, `at_once` at a time: then the oldest ends when the next begins.

    Sockets of slower attempts are closed in any case.
    """

    def __init__(
        self,
        attempt: Callable[[str, BrokerAddress], Awaitable[socket.socket]],
        target: BrokerAddress,
        at_once: int,
    ) -> None:
        self._attempt = attempt
        self._target = target
        self._at_once = at_once
        self._opened: list[socket.socket] = []
        self._error: OSError | None = None
        # The oldest first.
        self._running: dict[asyncio.Task[None], None] = {}

    async def run(self, addresses: Sequence[str]) -> socket.socket:
        """Return the socket of the first address that answers; raise the last OSError if none does."""
        winner: socket.socket | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for position, address in enumerate(addresses):
                    if len(self._running) == self._at_once:
                        await asyncio.wait({self._cancel_oldest()})
                    if self._opened:
                        break
                    self._running[group.create_task(self._try(address))] = None
                    await self._look(wait_for_all=position == len(addresses) - 1)
                while self._running:
                    self._cancel_oldest()
            if self._opened:
                winner = self._opened[0]
                return winner
            assert self._error is not None
            raise self._error
        finally:
            for sock in self._opened:
                if sock is not winner:
                    sock.close()

    def _cancel_oldest(self) -> asyncio.Task[None]:
        task = next(iter(self._running))
        del self._running[task]
        task.cancel()
        return task

    async def _look(self, *, wait_for_all: bool) -> None:
        """Wait until an attempt has succeeded, or until it is time for the next attempt."""
        while self._running and not self._opened:
            timeout = None if wait_for_all else HEAD_START_SECONDS
            done, _ = await asyncio.wait(self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del self._running[task]
            if not wait_for_all:
                break

    async def _try(self, address: str) -> None:
        try:
            self._opened.append(await self._attempt(address, self._target))
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
    return NoSocket(text) if error.errno in OWN_FAULTS else BrokerUnreachable(text)
