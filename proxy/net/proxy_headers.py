"""Read the PROXY header of accepted clients (haProxyProtocolEnabled).

Only the header is read from the socket, so the code that serves the client next, with or without TLS, needs no
knowledge of the header. The time for it counts towards the handshake's time-out. The first bytes of a client that sends
no header show that there is none.

A connection whose header is awaited is known by the address of its socket alone. Where there is no room for one more,
the oldest one of the address with most ends for a newcomer of another address (sites first, `core/key_members.py`).
For one of the same address, or where no address has more, one ends that was silent for `SILENT_SECONDS`.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from protocol.errors import MalformedFrame
from protocol.proxy_header import HeaderReader, ProxyHeader
from proxy.core.addresses import host_network
from proxy.core.counters import Counters, gauge
from proxy.core.errors import DisconnectCause
from proxy.core.key_members import KeyMembers
from proxy.core.log import LinePace, Logger
from proxy.core.tasks import TaskScope, do_nothing

PEEK_BYTES: Final = 512

# A balancer sends the header with its connection, so this is long for a header over a slow line, too.
SILENT_SECONDS: Final = 1.0

# The last argument is the loop's time of the accept, from which the handshake's time-out runs until CONNECT.
Admit = Callable[[socket.socket, str, ProxyHeader | None, float], None]
AWAITED_HEADERS: Final = gauge(
    "client_awaited_headers", "Connections whose PROXY header has not arrived yet (haProxyProtocolEnabled)."
)


async def read_proxy_header(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> ProxyHeader | None:
    """Read the header from a non-blocking socket and leave the rest; return None if the stream begins without one.

    Raises MalformedFrame, or OSError if the peer leaves before. The caller sets the time-out.
    """
    reader = HeaderReader()
    while not reader.done:
        try:
            data = sock.recv(PEEK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            await _readable(loop, sock.fileno())
            continue
        if not data:
            raise ConnectionResetError("the peer left before its first byte")
        if belongs := reader.take(data):
            sock.recv(belongs)
        elif not reader.done:
            await _another_byte(loop, sock)
    return reader.header


def peeked_header(sock: socket.socket) -> ProxyHeader | None:
    """Return the header of a non-blocking socket if the whole of it has come, and leave it there; else None."""
    reader = HeaderReader()
    try:
        reader.take(sock.recv(PEEK_BYTES, socket.MSG_PEEK))
    except (OSError, MalformedFrame):
        # The reader of the header will say so.
        return None
    return reader.header


async def _readable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def _another_byte(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Wait until a second byte stands behind the one that stays unread."""
    # Else the byte that is there would wake the loop without end.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2)
    try:
        await _readable(loop, sock.fileno())
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if len(sock.recv(2, socket.MSG_PEEK)) < 2:
        raise ConnectionResetError("the peer left after its first byte")


class AwaitedHeader:
    """A connection accepted at `since` whose header is awaited; `cancel` ends it."""

    __slots__ = ("cancel", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.cancel: Callable[[], object] = do_nothing


class HeaderWaits:
    """The connections of all ports whose headers are awaited, by the network of their sockets' addresses."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        counters.show(AWAITED_HEADERS, lambda: len(self))
        self._members: KeyMembers[str, AwaitedHeader] = KeyMembers()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, address: str, awaited: AwaitedHeader) -> None:
        """Add a connection accepted from an address."""
        self._members.add(host_network(address), awaited)

    def remove(self, awaited: AwaitedHeader) -> None:
        """Remove a connection; a second call does nothing."""
        self._members.remove(awaited)

    def end_for(self, address: str, now: float) -> bool:
        """End a connection for a newcomer of an address; return False if the newcomer has to go."""
        victim = self._victim_for(host_network(address), now)
        if victim is None:
            return False
        self.remove(victim)
        self._counters.disconnected(DisconnectCause.CONNECTION_LIMIT)
        victim.cancel()
        return True

    def _victim_for(self, network: str, now: float) -> AwaitedHeader | None:
        members = self._members
        most = next(members.sizes.outweighing(network, 1), None)
        if most is not None:
            return next(iter(members.of(most)))
        oldest = next(iter(members.of(network) or next(members.largest(), {})), None)
        return oldest if oldest is not None and now - oldest.since >= SILENT_SECONDS else None


class AwaitedHeaders:
    """Read the headers of accepted sockets, each within `seconds()`, and pass the sockets on to `admit`.

    `waits` are those of all ports.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: Callable[[], float],
        admit: Admit,
        waits: HeaderWaits,
        counters: Counters,
        log: Logger,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._admit = admit
        self._waits = waits
        self._counters = counters
        self._log = log
        self._pace = LinePace()
        self._scope = TaskScope(lambda error: counters.internal_error(error, "proxy header"))
        self._sockets: set[socket.socket] = set()

    def __len__(self) -> int:
        return len(self._sockets)

    def begin(self, accepted: socket.socket, address: str) -> None:
        """Start to read the header of `accepted`, which came from `address`; own the socket until then."""
        awaited = AwaitedHeader(self._loop.time())
        self._sockets.add(accepted)
        self._waits.add(address, awaited)
        awaited.cancel = self._scope.start(
            self._read(accepted, address, awaited), partial(self._over, accepted, awaited)
        )

    async def finish(self, seconds: float) -> None:
        """Wait for the headers that are under way, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._scope.emptied()

    async def close(self) -> None:
        """Close all sockets whose header has not been read."""
        self._scope.cancel()
        await self._scope.emptied()

    async def _read(self, accepted: socket.socket, address: str, awaited: AwaitedHeader) -> None:
        try:
            async with asyncio.timeout_at(awaited.since + self._seconds()):
                header = await read_proxy_header(self._loop, accepted)
        except TimeoutError:
            self._lost(DisconnectCause.HANDSHAKE_TIMEOUT, address, "no byte of a header or of a frame")
        except MalformedFrame as error:
            self._lost(DisconnectCause.MALFORMED_PROXY_HEADER, address, str(error))
        except OSError:
            self._counters.disconnected(DisconnectCause.CLIENT_CLOSED)
        else:
            self._sockets.discard(accepted)
            self._waits.remove(awaited)
            self._admit(accepted, address, header, awaited.since)

    def _over(self, accepted: socket.socket, awaited: AwaitedHeader) -> None:
        self._waits.remove(awaited)
        if accepted in self._sockets:
            self._sockets.discard(accepted)
            with suppress(OSError):
                accepted.close()

    def _lost(self, cause: DisconnectCause, address: str, detail: str) -> None:
        self._counters.disconnected(cause)
        if self._pace.due(self._loop.time(), cause):
            self._log.info("client disconnected", client=address, cause=str(cause), detail=detail)
