"""Endpoints: the socket side of every connection, on top of asyncio's transports.

All connections of an event loop read into one buffer, so an idle connection owns no buffer. The write buffer's high
mark is zero: a write that did not pause has left user space, and its direct permit may be released. uvloop ignores
`pause_reading` inside `connection_made` and may deliver once more after a pause, so `data_arrived` must accept data
at any time.
"""

import asyncio
import socket
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, cast

from protocol.proxy_header import HostPort
from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.sockets import reset_on_close, unread_bytes, untaken_bytes

SMALL_READ_BYTES: Final = 4096
LARGE_READ_BYTES: Final = 64 * 1024
# A closed connection whose peer does not take the last bytes is aborted after this time; in Rust: `relay/pair.rs`.
LINGER_SECONDS: Final = 5.0
# A connection that is over is looked at again after this long, while its tasks or unsent bytes end.
DISSOLVE_SECONDS: Final = 1.0
# An aborted connection may leave at most this much in the kernel's send queue; with more it is reset.
LEFT_TO_THE_KERNEL_BYTES: Final = 64 * 1024


class SharedReadBuffer:
    """The read buffers that all connections of a loop share: `small` for commands, `large` for large frames."""

    __slots__ = ("large", "small")

    def __init__(self) -> None:
        self.large = memoryview(bytearray(LARGE_READ_BYTES))
        self.small = self.large[:SMALL_READ_BYTES]


class Endpoint(asyncio.BufferedProtocol):
    """A connection's socket side. Subclasses decide what arriving bytes, an end of stream and a loss mean.

    Subclasses override `get_buffer`, `data_arrived`, `stream_ended`, `lost`. `writable` is True while every written
    byte has left user space; else False, or the future that `drain` returned. Relays read it for every read of
    their socket: a property would cost them a call.
    """

    __slots__ = (
        "_hangup", "_joined", "_kept", "_reading", "_resting", "_shared", "cause", "detail", "fd", "is_tls", "loop",
        "transport", "writable",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        self.loop = loop
        self._shared = shared
        self._hangup = hangup
        self._joined: list[bytes] | None = None
        self._reading = True
        self._resting = False
        # The number of the socket among those that are kept behind the end of their connections.
        self._kept: int | None = None
        self.writable: asyncio.Future[None] | bool = True
        self.transport: asyncio.Transport | None = None
        self.cause: DisconnectCause | None = None
        # Why it has ended, for the log and for those who waited, if the cause does not say all.
        self.detail = ""
        self.fd = -1
        # A TLS transport keeps no view of written data, and the socket must not be written directly.
        self.is_tls = False

    # --- for subclasses to override ---------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._shared.small

    def data_arrived(self, count: int) -> None:
        """Process `count` bytes at the start of the buffer that `get_buffer` last returned."""
        raise NotImplementedError

    def stream_ended(self) -> None:
        """Called at the peer's FIN; closes the connection by default."""
        self.close(self.peer_closed_cause)

    def lost(self, cause: DisconnectCause) -> None:
        """Called exactly once when the connection has ended: release what it holds."""

    def broke_off(self, cause: DisconnectCause) -> None:
        """Call `lost`, at once by default: nobody here has ended the connection, and thousands may do this at once."""
        self.lost(cause)

    def output_full(self) -> None:
        """Called when the peer does not take what is written."""

    def output_settled(self) -> None:
        """Called when every written byte has left user space and its permit is released."""

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Return the disconnect cause for a connection that its peer closes."""
        return DisconnectCause.CLIENT_CLOSED

    # --- asyncio's callbacks ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Adopt the transport."""
        self.adopt(cast(asyncio.Transport, transport))

    def adopt(self, transport: asyncio.Transport) -> None:
        """Use `transport` from now on: a new one, or one that another protocol detached."""
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno()
        self.is_tls = transport.get_extra_info("tls_session") is not None
        transport.set_write_buffer_limits(high=0)
        # Bytes of the protocol before may wait: only that protocol was told of the pause, and this one is told its end.
        self.writable = not transport.get_write_buffer_size()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the arrived bytes to the subclass; an exception ends this connection only."""
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
        """Set `writable` to False: written bytes are left in user space."""
        if self.writable is True:
            self.writable = False

    def resume_writing(self) -> None:
        """Set `writable` to True and complete `drain`: all bytes have left user space."""
        waiter, self.writable = self.writable, True
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whatever waits for this connection, and call `lost`."""
        broke_off = self.cause is None
        if broke_off:
            self.cause = self._cause_of(exc)
            if isinstance(exc, ConnectionClosed):
                self.detail = exc.detail
        try:
            self._settle(self.broke_off if broke_off else self.lost)
        finally:
            self.transport = None
            if self._kept is not None:
                self._hangup.ended.transport_gone(self._kept)

    def _cause_of(self, exc: Exception | None) -> DisconnectCause:
        if isinstance(exc, ConnectionClosed):
            return exc.cause
        return DisconnectCause.CONNECTION_RESET if exc is not None else self.peer_closed_cause

    # --- for the rest of the proxy ----------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Return whether the connection has a transport and has not ended."""
        return self.cause is None and self.transport is not None

    @property
    def write_pending(self) -> bool:
        """Return whether written bytes are still in user space."""
        return self.writable is not True

    def write(self, data: bytes | memoryview) -> None:
        """Write, or do nothing if the connection has ended."""
        if self.cause is None and self.transport is not None:
            self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Write in the next iteration of the loop, or at `write_joined`: one system call for all data of one turn."""
        if self._joined is None:
            self._joined = [data]
            self.loop.call_soon(self.write_joined)
        else:
            self._joined.append(data)

    def write_joined(self) -> None:
        """Write what `write_soon` was called with; do nothing if that is written."""
        joined, self._joined = self._joined, None
        if joined is not None and self.cause is None and self.transport is not None:
            try:
                self.transport.write(joined[0] if len(joined) == 1 else b"".join(joined))
            except Exception as error:
                self.crashed(error)

    def writelines(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write several pieces with one call, or do nothing if the connection has ended."""
        if self.cause is None and self.transport is not None:
            self.transport.writelines(pieces)

    async def drained(self) -> None:
        """Wait until every written byte has left user space; raises ConnectionClosed if the connection ends first."""
        if self.cause is not None:
            raise ConnectionClosed(self.cause)
        if self.writable is True:
            return
        # A body and a queue of answers may wait at once: all share one future, and a cancelled waiter must not end it.
        await asyncio.shield(self.drain())

    def drain(self) -> asyncio.Future[None]:
        """Return a future that is done when the pending bytes have left; fails as `drained` does. Never cancel it."""
        assert self.cause is None
        if not isinstance(self.writable, asyncio.Future):
            self.writable = self.loop.create_future()
        return self.writable

    def pause_reading(self) -> None:
        """Stop reading and watch for a hang-up instead."""
        if self._reading and self.transport is not None and self.cause is None:
            self._reading = False
            self.transport.pause_reading()
            self._hangup.watch(self.fd, self._hung_up)

    def resume_reading(self) -> None:
        """Start reading again, without the watch for a hang-up."""
        if not self._reading and self.transport is not None and self.cause is None:
            self._reading = True
            self._hangup.unwatch(self.fd, self._hung_up)
            if not self._resting:
                self.transport.resume_reading()

    def rest(
        self, turns: LoopBudget, seconds: float, *, answers: bool = False, network: Hashable | None = None
    ) -> None:
        """Stop reading until this connection's next turn, which will take about `seconds` of the loop's time.

        Call after a read that filled its buffer: libuv reads such a socket up to 32 times in one iteration of the loop.
        `answers`: the connection brings what a broker answers to clients. With a `network` the turn is one of that
        network's clients.
        """
        if self._reading and not self._resting and self.transport is not None and self.cause is None:
            self._resting = True
            self.transport.pause_reading()
            turn = partial(self._rested, turns, seconds)
            if network is not None:
                turns.defer_client(network, turn)
            else:
                (turns.defer_answers if answers else turns.defer_cheap)(turn)

    def _rested(self, turns: LoopBudget, seconds: float) -> None:
        self._resting = False
        # If `pause_reading` was called meanwhile, its caller starts reading again.
        transport = self.transport
        # uvloop raises for a transport that was reset but has not called `connection_lost` yet.
        if self._reading and transport is not None and self.cause is None and not transport.is_closing():
            turns.charge(seconds)
            transport.resume_reading()

    @property
    def reading(self) -> bool:
        """Return whether the socket is read."""
        return self._reading

    def close(self, cause: DisconnectCause) -> None:
        """Close the connection once written bytes have left, or after `LINGER_SECONDS`; accept no more writes.

        If the kernel has much to send, or a relay any unsent byte, the rules of `ended_sockets.py` hold instead: the
        peer may take it.
        """
        self._end(cause, abort=False)

    def abort(self, cause: DisconnectCause) -> None:
        """Close the connection at once and drop what is unsent.

        Send an RST if the kernel still has much to send: after a mere close the kernel would keep those bytes for a
        peer that does not read until its own time-out, in memory that is counted for no connection any more. So with a
        relay's unsent bytes: a FIN would say that this is all.
        """
        if self._outlives():
            self._reset_when_closed()
        self._end(cause, abort=True)

    def reset(self, cause: DisconnectCause) -> None:
        """Close the connection at once with an RST; the kernel drops what it still has to send."""
        self._reset_when_closed()
        self._end(cause, abort=True)

    def _reset_when_closed(self) -> None:
        transport = self.transport
        if transport is not None and not transport.is_closing():
            reset_on_close(transport.get_extra_info("socket"))

    def kernel_queue_bytes(self) -> int:
        """Return the bytes in the kernel's send queue that the peer has not acknowledged; 0 if the kernel won't say."""
        if self.fd < 0:
            return 0
        try:
            return untaken_bytes(self.fd)
        except OSError:
            return 0

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes in user space that wait to be sent to this endpoint."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def untaken_bytes(self) -> int:
        """Return the bytes that this endpoint's peer has still to take, those in the kernel with them."""
        return self.unsent_bytes + self.kernel_queue_bytes()

    def unread_bytes(self) -> int:
        """Return the bytes that wait in the kernel to be read; 0 if the kernel won't say."""
        if self.fd < 0:
            return 0
        try:
            return unread_bytes(self.fd)
        except OSError:
            return 0

    def send_buffer_bytes(self) -> int:
        """Return the size of the kernel's send buffer, its bookkeeping included; 0 if the connection is gone."""
        if self.transport is None:
            return 0
        try:
            size: int = self.own_socket().getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        except OSError:
            return 0
        return size

    def own_socket(self) -> Any:
        """Return the connection's socket, of asyncio or uvloop; None if that is gone."""
        return None if self.transport is None else self.transport.get_extra_info("socket")

    def detach(self) -> asyncio.Transport:
        """Return the transport, paused for reading, for another protocol to adopt.

        From then on that protocol owns the connection. Raises ConnectionClosed if the connection has ended.
        """
        transport = self.transport
        if transport is None or self.cause is not None:
            raise ConnectionClosed(self.cause or self.peer_closed_cause)
        self.pause_reading()
        self._hangup.unwatch(self.fd, self._hung_up)
        self.transport = None
        self.fd = -1
        return transport

    def remains(self) -> "Endpoint":
        """Return an endpoint that has ended as this one did, and holds nothing else that this one holds."""
        remains = Endpoint(self.loop, self._shared, self._hangup)
        remains.cause = self.cause
        return remains

    def crashed(self, error: BaseException) -> None:
        """Abort this connection after an unexpected exception in its own code."""
        self.abort(DisconnectCause.INTERNAL_ERROR)

    def _end(self, cause: DisconnectCause, *, abort: bool) -> None:
        if self.cause is not None:
            if abort and self.transport is not None:
                # The connection was closing; its last bytes must not linger without their permit.
                self.transport.abort()
                if self._kept is not None:
                    self._hangup.ended.reset(self._kept)
            return
        self.cause = cause
        transport = self.transport
        if not abort and transport is not None and not transport.is_closing() and self._outlives():
            self._kept = self._hangup.ended.keep_behind(transport)
            if self._kept is None and self._left_much():
                # Without a descriptor nobody could look after the socket.
                self._reset_when_closed()
                abort = True
        try:
            self._settle(self.lost)
        finally:
            # A connection that has ended must not keep its socket, although `lost` raises.
            if transport is not None:
                self._end_transport(transport, abort)

    def _left_much(self) -> bool:
        return self.kernel_queue_bytes() > LEFT_TO_THE_KERNEL_BYTES

    def _outlives(self) -> bool:
        """Return whether the socket is to be looked after behind the end of this connection."""
        return self._left_much()

    def _end_transport(self, transport: asyncio.Transport, abort: bool) -> None:
        if abort:
            transport.abort()
            return
        transport.close()
        if self._kept is None and transport.get_write_buffer_size():
            self.loop.call_later(LINGER_SECONDS, transport.abort)

    def _hung_up(self, gone: bool) -> None:
        if self.cause is None:
            self.abort(DisconnectCause.CONNECTION_RESET if gone else self.peer_closed_cause)

    def _settle(self, lost: Callable[[DisconnectCause], None]) -> None:
        cause = self.cause
        assert cause is not None
        if self.fd < 0:
            return
        self._hangup.unwatch(self.fd, self._hung_up)
        self.fd = -1
        waiter, self.writable = self.writable, False
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_exception(ConnectionClosed(cause))
            waiter.exception()
        lost(cause)


def peer_name(transport: asyncio.BaseTransport) -> str:
    """Return the peer's `address:port`, for logs."""
    address: Any = transport.get_extra_info("peername")
    return str(HostPort.of(*address[:2])) if address else "?"
