"""TLS for asyncio protocols that receive bytes, such as aiohttp's, over the same transport with the same bounds."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport
from proxy.net.transport import SharedReadBuffer


class _Stream(asyncio.BufferedProtocol):
    """Read into the loop's buffer, and call `data_received` with a copy."""

    def __init__(self, protocol: asyncio.Protocol, buffers: SharedReadBuffer) -> None:
        self._protocol = protocol
        self._buffers = buffers
        self.connection_made = protocol.connection_made  # type: ignore[method-assign]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the relays' buffer: each read is passed on or detached before the next read begins."""
        return self._buffers.large

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on a copy: the protocol may keep the bytes."""
        self._protocol.data_received(bytes(self._buffers.large[:nbytes]))


class TlsStreams:
    """Accept TLS clients for asyncio protocols; `current` returns the context in force."""

    def __init__(self, shared: TlsShared, buffers: SharedReadBuffer, current: Callable[[], ssl.SSLContext]) -> None:
        self._shared = shared
        self._buffers = buffers
        self._current = current

    async def accept(self, sock: socket.socket, factory: Callable[[], asyncio.Protocol]) -> None:
        """Complete the handshake on `sock`, then make its protocol; raises ConnectionError if the handshake fails.

        The socket belongs to this method from the call on.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def make() -> _Stream:
            if not done.done():
                done.set_result(None)
            return _Stream(factory(), self._buffers)

        def fail(failure: TlsFailed) -> None:
            if not done.done():
                done.set_exception(ConnectionError(failure.detail))

        transport = TlsTransport(self._shared, self._current(), make, fail, server_side=True)
        await loop.connect_accepted_socket(lambda: transport, sock)
        try:
            await done
        except BaseException:
            transport.abort()
            raise
