"""Read the PROXY header of accepted clients (haProxyProtocolEnabled).

Only the header is read from the socket, so the code that serves the client next, with or without TLS, needs no
knowledge of the header. The time for it counts towards the handshake's time-out. The first byte of a client that sends
no header shows that there is none.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from protocol.errors import MalformedFrame
from protocol.proxy_header import HeaderReader, ProxyHeader
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.core.tasks import TaskScope
from proxy.net.counters import NetCounters

PEEK_BYTES: Final = 512

# The last argument is the loop's time of the accept, from which the handshake's time-out runs until CONNECT.
Admit = Callable[[socket.socket, str, ProxyHeader | None, float], None]


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
        taken = reader.take(data)
        if taken:
            sock.recv(taken)
    return reader.header


async def _readable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


class AwaitedHeaders:
    """Read the headers of accepted sockets, each within `seconds()`, and pass the sockets on to `admit`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: Callable[[], float],
        admit: Admit,
        counters: NetCounters,
        log: Logger,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._admit = admit
        self._counters = counters
        self._log = log
        self._pace = LinePace()
        self._scope = TaskScope(lambda error: counters.internal_error(error, "proxy header"))
        self._sockets: set[socket.socket] = set()

    def __len__(self) -> int:
        return len(self._sockets)

    def begin(self, accepted: socket.socket, address: str) -> None:
        """Start to read the header of `accepted`, which came from `address`; own the socket until then."""
        self._sockets.add(accepted)
        self._counters.awaited_headers += 1
        self._scope.start(self._read(accepted, address, self._loop.time()), partial(self._over, accepted))

    async def finish(self, seconds: float) -> None:
        """Wait for the headers that are under way, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._scope.emptied()

    async def close(self) -> None:
        """Close all sockets whose header has not been read."""
        self._scope.cancel()
        await self._scope.emptied()

    async def _read(self, accepted: socket.socket, address: str, since: float) -> None:
        try:
            async with asyncio.timeout_at(since + self._seconds()):
                header = await read_proxy_header(self._loop, accepted)
        except TimeoutError:
            self._lost(DisconnectCause.HANDSHAKE_TIMEOUT, address, "no byte of a header or of a frame")
        except MalformedFrame as error:
            self._lost(DisconnectCause.MALFORMED_PROXY_HEADER, address, str(error))
        except OSError:
            self._counters.disconnected(DisconnectCause.CLIENT_CLOSED)
        else:
            self._sockets.discard(accepted)
            self._admit(accepted, address, header, since)

    def _over(self, accepted: socket.socket) -> None:
        self._counters.awaited_headers -= 1
        if accepted in self._sockets:
            self._sockets.discard(accepted)
            with suppress(OSError):
                accepted.close()

    def _lost(self, cause: DisconnectCause, address: str, detail: str) -> None:
        self._counters.disconnected(cause)
        if self._pace.due(self._loop.time(), cause):
            self._log.info("client disconnected", client=address, cause=str(cause), detail=detail)
