"""The one place that knows asyncio transports: reading into a shared buffer, writing with nothing left behind,
hang-ups.

Every connection of an event loop reads into one buffer, so that an idle connection owns none. The write buffer's high
mark is zero: a write that did not pause has left user space, which is when a direct permit may end. uvloop ignores
`pause_reading` inside `connection_made` and may deliver once more after a pause; so `data_arrived` must accept data
at any time.
"""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, cast

from protocol.host_port import host_port
from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.net.hangup import HangupWatcher

SMALL_READ_BYTES: Final = 4096
LARGE_READ_BYTES: Final = 64 * 1024
# A closed connection whose peer does not take the last bytes is cut after this long.
LINGER_SECONDS: Final = 5.0
# What a connection that is cut may leave to the kernel for as long as the kernel likes.
LEFT_TO_THE_KERNEL_BYTES: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class SharedReadBuffer:
    """Lend one set of buffers to all connections of a loop; who must keep the bytes takes one and leaves a new one.

    `small` (the beginning of `large`) is for commands, `large` for a relay, `bulk` for a relay that fills `large`.
    """

    __slots__ = ("bulk", "large", "small")

    def __init__(self, bulk_bytes: int = LARGE_READ_BYTES) -> None:
        self.bulk = memoryview(bytearray(bulk_bytes))
        self.large = memoryview(bytearray(LARGE_READ_BYTES))
        self.small = self.large[:SMALL_READ_BYTES]

    def surrender(self, place: memoryview) -> None:
        """Leave `large` or `bulk` to a write that has not ended, and lend a new one from now on."""
        if place is self.bulk:
            self.bulk = memoryview(bytearray(len(place)))
        else:
            self.large = memoryview(bytearray(LARGE_READ_BYTES))
            self.small = self.large[:SMALL_READ_BYTES]


class Endpoint(asyncio.BufferedProtocol):
    """A connection's socket side. Subclasses say what arriving bytes, an end of stream and a loss mean.

    Overridden by subclasses: `read_place`, `data_arrived`, `stream_ended`, `lost`.
    """

    __slots__ = ("_hangup", "_reading", "_shared", "_writable", "cause", "fd", "loop", "sealed", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        self.loop = loop
        self._shared = shared
        self._hangup = hangup
        self._reading = True
        self._writable: asyncio.Future[None] | bool = True
        self.transport: asyncio.Transport | None = None
        self.cause: DisconnectCause | None = None
        self.fd = -1
        # With TLS the transport keeps no view of what is written, and nobody may write past it.
        self.sealed = False

    # --- what a subclass decides ------------------------------------------------------------------

    def read_place(self) -> memoryview:
        """Give the place for the next bytes."""
        return self._shared.small

    def data_arrived(self, count: int) -> None:
        """Take `count` bytes from the place last given."""
        raise NotImplementedError

    def stream_ended(self) -> None:
        """React to the peer's FIN; the default is to leave."""
        self.close(self.peer_closed_cause)

    def lost(self, cause: DisconnectCause) -> None:
        """Clean up after the connection; called exactly once."""

    def output_full(self) -> None:
        """Hear that the peer does not take what is written."""

    def output_settled(self) -> None:
        """Hear that everything written has left user space and is paid for."""

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Name the end of this connection when its peer closes it."""
        return DisconnectCause.CLIENT_CLOSED

    # --- asyncio's callbacks ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Adopt the transport (asyncio's callback)."""
        self.adopt(cast(asyncio.Transport, transport))

    def adopt(self, transport: asyncio.Transport) -> None:
        """Take over `transport`, fresh or from another protocol."""
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno()
        self.sealed = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give asyncio the place to read into."""
        return self.read_place()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass arrived bytes on; an exception here ends this connection and nothing else."""
        if self.cause is not None:
            return
        try:
            self.data_arrived(nbytes)
        except Exception as error:
            self.crashed(error)

    def eof_received(self) -> bool:
        """Keep the transport open: the subclass decides what a FIN means."""
        if self.cause is None:
            self.stream_ended()
        return True

    def pause_writing(self) -> None:
        """Note that bytes are left in user space."""
        if self._writable is True:
            self._writable = False

    def resume_writing(self) -> None:
        """Note that all bytes have left user space."""
        waiter, self._writable = self._writable, True
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle everything that waited for this connection."""
        if self.cause is None:
            self.cause = self._cause_of(exc)
        self._settle()
        self.transport = None

    def _cause_of(self, exc: Exception | None) -> DisconnectCause:
        if isinstance(exc, ConnectionClosed):
            return exc.cause
        return DisconnectCause.CONNECTION_RESET if exc is not None else self.peer_closed_cause

    # --- what the rest of the proxy uses ----------------------------------------------------------

    @property
    def open(self) -> bool:
        """Tell whether the connection still carries anything."""
        return self.cause is None and self.transport is not None

    @property
    def write_pending(self) -> bool:
        """Tell whether written bytes still wait in user space."""
        return self._writable is not True

    def write(self, data: bytes | memoryview) -> None:
        """Write, or do nothing if the connection has ended."""
        if self.cause is None and self.transport is not None:
            self.transport.write(data)

    def writelines(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write several pieces with one call, or do nothing if the connection has ended."""
        if self.cause is None and self.transport is not None:
            self.transport.writelines(pieces)

    async def drained(self) -> None:
        """Wait until every written byte has left user space; raises ConnectionClosed if the connection ends first."""
        if self.cause is not None:
            raise ConnectionClosed(self.cause)
        if self._writable is True:
            return
        # Several may wait (a body and a queue of answers): one future serves all, a cancelled waiter must not end it.
        await asyncio.shield(self.drain())

    def drain(self) -> asyncio.Future[None]:
        """Give what is done when the bytes that are pending have left; fails as `drained` does. Not to be cancelled."""
        assert self.cause is None
        if not isinstance(self._writable, asyncio.Future):
            self._writable = self.loop.create_future()
        return self._writable

    def pause_reading(self) -> None:
        """Stop reading and watch for a hang-up instead."""
        if self._reading and self.transport is not None and self.cause is None:
            self._reading = False
            self.transport.pause_reading()
            self._hangup.watch(self.fd, self._hung_up)

    def resume_reading(self) -> None:
        """Read again."""
        if not self._reading and self.transport is not None and self.cause is None:
            self._reading = True
            self._hangup.unwatch(self.fd)
            self.transport.resume_reading()

    def rest(self) -> None:
        """Read no more in this turn of the loop: libuv reads a socket that has more up to 32 times in one."""
        if self._reading and self.transport is not None and self.cause is None:
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        # Whoever stopped the reading meanwhile will begin it again.
        if self._reading and self.transport is not None and self.cause is None:
            self.transport.resume_reading()

    @property
    def reading(self) -> bool:
        """Tell whether the socket is being read."""
        return self._reading

    def close(self, cause: DisconnectCause) -> None:
        """End the connection after what is written has gone out, or soon (nothing more is accepted)."""
        self._end(cause, abort=False)

    def abort(self, cause: DisconnectCause) -> None:
        """End the connection at once and forget what is unsent.

        With an RST if the kernel still has much to send: after a mere close it would keep offering it to a peer that
        does not read, until it loses patience, in memory that no connection is counted for any more.
        """
        if self.kernel_queue_bytes() > LEFT_TO_THE_KERNEL_BYTES:
            self._reset_when_closed()
        self._end(cause, abort=True)

    def reset(self, cause: DisconnectCause) -> None:
        """End the connection at once with an RST, whatever the kernel still has to send."""
        self._reset_when_closed()
        self._end(cause, abort=True)

    def _reset_when_closed(self) -> None:
        transport = self.transport
        if transport is not None and not transport.is_closing():
            with suppress(OSError):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def kernel_queue_bytes(self) -> int:
        """Count the bytes that the kernel has taken and the peer has not acknowledged; 0 where no kernel tells."""
        if self.fd < 0:
            return 0
        try:
            # SIOCOUTQ of Linux, under its other name.
            return int.from_bytes(fcntl.ioctl(self.fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:
            return 0

    def send_buffer_bytes(self) -> int:
        """Give the size of the kernel's send buffer, its own records included; 0 if the connection is gone."""
        if self.transport is None:
            return 0
        try:
            size: int = self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        except OSError:
            return 0
        return size

    def detach(self) -> asyncio.Transport:
        """Give the transport to another protocol, which takes over all that was owed here.

        Reading is paused then; raises ConnectionClosed if the connection has ended.
        """
        transport = self.transport
        if transport is None or self.cause is not None:
            raise ConnectionClosed(self.cause or self.peer_closed_cause)
        self.pause_reading()
        self._hangup.unwatch(self.fd)
        self.transport = None
        self.fd = -1
        return transport

    def crashed(self, error: BaseException) -> None:
        """End this connection because of an unexpected exception of its own."""
        self.abort(DisconnectCause.INTERNAL_ERROR)

    def _end(self, cause: DisconnectCause, *, abort: bool) -> None:
        if self.cause is not None:
            if abort and self.transport is not None:
                # It was closing, with bytes left that must not linger without their permit.
                self.transport.abort()
            return
        self.cause = cause
        transport = self.transport
        self._settle()
        if transport is not None:
            if abort:
                transport.abort()
                return
            transport.close()
            if transport.get_write_buffer_size():
                self.loop.call_later(LINGER_SECONDS, transport.abort)

    def _hung_up(self, gone: bool) -> None:
        if self.cause is None:
            self.abort(DisconnectCause.CONNECTION_RESET if gone else self.peer_closed_cause)

    def _settle(self) -> None:
        cause = self.cause
        assert cause is not None
        if self.fd < 0:
            return
        self._hangup.unwatch(self.fd)
        self.fd = -1
        waiter, self._writable = self._writable, False
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_exception(ConnectionClosed(cause))
            waiter.exception()
        self.lost(cause)


def peer_name(transport: asyncio.BaseTransport) -> str:
    """Name the other end as `address:port`, for logs."""
    address: Any = transport.get_extra_info("peername")
    if not address:
        return "?"
    return host_port(address[0], address[1])
