"""TLS for asyncio protocols that receive bytes, such as aiohttp's, over the same transport with the same bounds.

Handshakes take places as on the ports for Pulsar clients (`arrivals.py`): a whole ClientHello first, in turns by
address.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from proxy.config.core import Core
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace
from proxy.net.tls.arrivals import Arrival, Arrivals
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport
from proxy.net.transport import SharedReadBuffer

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig


class _Stream(asyncio.BufferedProtocol):
    """Read into the loop's buffer, and call `data_received` with a copy."""

    def __init__(
        self, protocol: asyncio.Protocol, buffers: SharedReadBuffer, on_failure: Callable[[TlsFailed], None]
    ) -> None:
        self._protocol = protocol
        self._buffers = buffers
        self._on_failure = on_failure
        self.connection_made = protocol.connection_made  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on; the protocol knows no reasons of TLS."""
        self._protocol.connection_lost(exc)
        if isinstance(exc, TlsFailed):
            self._on_failure(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the relays' buffer: each read is passed on or detached before the next read begins."""
        return self._buffers.large

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on a copy: the protocol may keep the bytes."""
        self._protocol.data_received(bytes(self._buffers.large[:nbytes]))


@dataclass(slots=True)
class _Accepting:
    """A handshake that a caller of `accept` waits for; `transport` is set when the handshake is done."""

    factory: Callable[[], asyncio.Protocol]
    done: asyncio.Future[None]
    transport: TlsTransport | None = None


class TlsStreams:
    """Accept TLS clients of one port for asyncio protocols, as many handshakes at once as a port for clients has.

    `current` returns the context in force.
    """

    def __init__(
        self,
        core: Core,
        shared: TlsShared,
        buffers: SharedReadBuffer,
        current: Callable[[], "TlsConfig"],
    ) -> None:
        self._log = core.log.of("net")
        self._loop = core.loop
        self._buffers = buffers
        self._counters = core.counters
        self._pace = LinePace()
        self._accepting: dict[Arrival, _Accepting] = {}
        self._arrivals = Arrivals(core, shared, current, self._made, self._ended, self._log)

    async def accept(
        self, sock: socket.socket, address: str, until: float, factory: Callable[[], asyncio.Protocol]
    ) -> None:
        """Complete the handshake on `sock`, at the latest `until`, then make its protocol.

        Raises OSError if the handshake fails, and TimeoutError. The socket belongs to this method from the call on.
        """
        arrival = self._arrivals.take(sock, address, None)
        own = self._accepting[arrival] = _Accepting(factory, self._loop.create_future())
        cause = DisconnectCause.CONNECTION_LIMIT
        try:
            async with asyncio.timeout_at(until):
                await own.done
        except BaseException as error:
            if isinstance(error, TimeoutError):
                cause = DisconnectCause.HANDSHAKE_TIMEOUT
            self._arrivals.end(arrival, cause)
            if own.transport is not None:
                # Cancelled in the iteration in which the handshake was done.
                own.transport.abort()
            raise

    async def close(self) -> None:
        """Stop watching sockets; callers of `accept` are cancelled before."""
        await self._arrivals.close()

    def _ended(self, arrival: Arrival, cause: DisconnectCause) -> None:
        own = self._accepting.pop(arrival, None)
        if own is not None and not own.done.done():
            own.done.set_exception(ConnectionError(f"no tls handshake: {cause}"))

    def _made(self, arrival: Arrival) -> _Stream:
        own = self._accepting.pop(arrival)
        own.transport = arrival.transport
        if not own.done.done():
            own.done.set_result(None)
        return _Stream(own.factory(), self._buffers, partial(self._failed, arrival.name))

    def _failed(self, client: str, failure: TlsFailed) -> None:
        """Count and log an end behind the handshake, as the sessions do with those of Pulsar clients."""
        self._counters.disconnected(failure.cause)
        if self._pace.due(self._loop.time(), failure.cause):
            self._log.info("client disconnected", client=client, cause=str(failure.cause), detail=failure.detail)
