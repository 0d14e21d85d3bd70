"""The small relay: raw bytes both ways on the event loop, for a proxy that does without the native extension.

Plain sockets only, and nothing is looked at, counted by topic or slowed down (`proxy/config/without_extension.py`
refuses what would ask for more). An end is not read while the other has bytes to take, so a relay holds at most one
read of `relayBufferBytes` for each direction. An end that fills a read, or that is read when the time of this iteration
is over, rests until the turn of its network. The contract is in `engine.py`, its other implementer in
`native_engine.py`.
"""

import asyncio
import errno
import socket
from dataclasses import dataclass
from typing import Final

from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import DISSOLVE_SECONDS, Endpoint, SharedReadBuffer, peer_name
from proxy.relay.engine import NOT_PAUSED, Direction, PauseReason, RelayOrder, RelaySnapshot, stops_the_clock
from proxy.relay.memory.sockets import SocketMemory, memory_of
from proxy.relay.traffic import RelayTraffic

# A turn of an end that has more to read than a read: four of them fill an iteration of the loop.
FULL_SECONDS: Final = 0.0005
# A turn of one that has little: the read, the write, and what the loop does for both.
SMALL_SECONDS: Final = 0.00002


@dataclass(frozen=True, slots=True)
class SmallEngine:
    """Makes small relays; all are read into `buffer`, whose size is what a relay holds of one direction at most."""

    loop: asyncio.AbstractEventLoop
    shared: SharedReadBuffer
    hangup: HangupWatcher
    loop_budget: LoopBudget
    counters: Counters
    buffer: memoryview

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> "SmallRelay":
        """Return the relay of two plain connections."""
        return SmallRelay(self, order)


class SmallEnd(Endpoint):
    """A connection of a relay, the client's or the broker's; the bytes that are read from it go to `peer`."""

    __slots__ = ("_closed_cause", "paused", "peer", "reads", "received", "relay")

    def __init__(self, relay: "SmallRelay", engine: SmallEngine, closed_cause: DisconnectCause) -> None:
        super().__init__(engine.loop, engine.shared, engine.hangup)
        self._closed_cause = closed_cause
        self.relay = relay
        self.peer: SmallEnd = self
        self.received = self.reads = 0
        # Reasons of ours not to read this end, beside a peer that does not take its bytes.
        self.paused = NOT_PAUSED

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Return the disconnect cause for an end that its remote side closes."""
        return self._closed_cause

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer of all relays."""
        return self.relay.engine.buffer

    def data_arrived(self, count: int) -> None:
        """Write the bytes to the peer; read on when it has taken them all, and in turns."""
        self.received += count
        self.reads += 1
        engine, peer = self.relay.engine, self.peer
        if not peer.open:
            return
        # A copy: the transport keeps what the kernel does not take, and the next read is into the same buffer.
        peer.write(bytes(engine.buffer[:count]))
        if peer.write_pending:
            self.pause_reading()
        elif (full := count == len(engine.buffer)) or engine.loop_budget.spent():
            self.rest(engine.loop_budget, FULL_SECONDS if full else SMALL_SECONDS, network=self.relay.network)

    def pass_first(self, data: bytes) -> None:
        """Relay the bytes that were read together with the handshake."""
        self.peer.write(data)
        if self.peer.write_pending:
            self.pause_reading()

    def resume_writing(self) -> None:
        """Mark this end writable, and let the peer read again: its bytes have left."""
        super().resume_writing()
        self.peer.read_again()

    def read_again(self) -> None:
        """Read, unless a reason is left or the peer has bytes to take."""
        if not self.paused and not self.peer.write_pending:
            self.resume_reading()

    def stream_ended(self) -> None:
        """Relay the FIN and keep the other direction open; the second FIN ends the relay."""
        self.relay.half_closed(self)

    def lost(self, cause: DisconnectCause) -> None:
        """End the relay."""
        self.relay.end_lost(self, cause)

    def crashed(self, error: BaseException) -> None:
        """Report an exception of this relay's code and abort the connection."""
        self.relay.engine.counters.internal_error(error, "relay")
        super().crashed(error)

    def dissolve(self) -> None:
        """Release the other end and the relay: both connections are over."""
        del self.peer, self.relay

    def _outlives(self) -> bool:
        return self.unsent_bytes > 0 or super()._outlives()

    def _cause_of(self, exc: Exception | None) -> DisconnectCause:
        if isinstance(exc, OSError) and exc.errno == errno.ETIMEDOUT:
            return DisconnectCause.WRITE_STALLED
        return super()._cause_of(exc)

    def _hung_up(self, gone: bool) -> None:
        error: int = self.own_socket().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if gone else 0
        if gone and not error and self.relay.finished_by(self.peer):
            # epoll reports a socket with the FINs of both sides as gone, too, although unread bytes may be left: read
            # on to find out.
            return
        if gone:
            stalled = error == errno.ETIMEDOUT
            self.abort(DisconnectCause.WRITE_STALLED if stalled else DisconnectCause.CONNECTION_RESET)
        elif self.cause is None and not self._reading:
            self.relay.fin_waits = True
            # After a mere FIN bytes may be left to relay: from now on watch for a reset only.
            self._hangup.watch(self.fd, self._hung_up, half_close=False)


class SmallRelay:
    """A client and its broker; `on_end` of the order is called once, when the client's connection has ended."""

    __slots__ = (
        "_finished", "_order", "broker", "broker_name", "client", "client_name", "engine", "fin_waits", "network",
        "principal", "traffic",
    )  # fmt: skip

    detail = ""
    produces = consumes = False

    def __init__(self, engine: SmallEngine, order: RelayOrder) -> None:
        self._order = order
        self.engine = engine
        self.client = SmallEnd(self, engine, DisconnectCause.CLIENT_CLOSED)
        self.broker = SmallEnd(self, engine, DisconnectCause.BROKER_CLOSED)
        self.client.peer, self.broker.peer = self.broker, self.client
        self._finished: SmallEnd | None = None
        # A FIN has come that is not read yet: bytes in front of it wait for their receiver.
        self.fin_waits = False
        # Bytes up to the last look; the ends' `received` counts the bytes since then, so that it stays small.
        self.traffic = RelayTraffic(engine.counters, engine.loop.time(), order.read_timeout_seconds)
        self.client_name, self.broker_name = order.client, "?"
        self.principal = order.principal
        self.network = order.network

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Adopt both transports, relay the bytes that came with the handshakes, and start reading."""
        self.broker_name = peer_name(broker)
        for end, transport in ((self.client, client), (self.broker, broker)):
            end.adopt(transport)
            transport.set_protocol(end)
        for end, first_bytes in ((self.broker, to_client), (self.client, to_broker)):
            if first_bytes:
                end.pass_first(first_bytes)
        for end in (self.client, self.broker):
            if end.reading and end.transport is not None:
                end.transport.resume_reading()

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of the client that wait in the kernel to be read."""
        return self.client.unread_bytes()

    def snapshot(self) -> RelaySnapshot:
        """Return the relay as it is now."""
        self._count_moved()
        client, broker = self.client, self.broker
        return RelaySnapshot(
            moved=(self.traffic.to_broker_bytes, self.traffic.to_client_bytes),
            unsent=(broker.unsent_bytes, client.unsent_bytes),
            paused=(client.paused, broker.paused),
            permit_bytes=0,
            half_open=self._half_open,
            untaken_bytes=self._untaken(),
        )

    def socket_bytes(self) -> SocketMemory:
        """Return the kernel memory of both sockets."""
        return SocketMemory(memory_of(self.broker.transport), memory_of(self.client.transport))

    def pause(self, direction: Direction, reason: PauseReason) -> None:
        """Stop to read the sender of `direction`, for one more reason."""
        self._sender(direction).paused |= reason
        self._sender(direction).pause_reading()

    def resume(self, direction: Direction, reason: PauseReason) -> None:
        """Read the sender of `direction` again, unless another reason is left or its receiver has bytes to take."""
        was_paused, sender = self._paused, self._sender(direction)
        sender.paused &= ~reason
        sender.read_again()
        if was_paused and not self._paused:
            self.traffic.pause_ended(sender.loop.time())

    def drip(self, direction: Direction, *, whole_read: bool = False) -> None:
        """Do nothing: no throttle pauses this relay, and so nobody asks."""

    def tick(self, now: float) -> None:
        """Update rates and counters; abort the relay if no byte has moved for the read time-out."""
        self._count_moved()
        if self.traffic.tick(now, self.client.reads, self._untaken, paused=self._paused, half_open=self._half_open):
            self.abort(DisconnectCause.READ_TIMEOUT)

    def retire(self, now_or_never: bool) -> None:
        """Close a relay that is old enough, if no byte has moved since the last call or `now_or_never` is set."""
        self._count_moved()
        if self.traffic.idle_since_retire() or now_or_never:
            self.close(DisconnectCause.CONNECTION_AGE)

    def close(self, cause: DisconnectCause) -> None:
        """Close both connections after their pending bytes have left."""
        self.client.close(cause)

    def abort(self, cause: DisconnectCause) -> None:
        """Close both connections at once."""
        self.client.abort(cause)
        self.broker.abort(cause)

    def finished_by(self, end: SmallEnd) -> bool:
        """Return whether the FIN of `end` was the first."""
        return self._finished is end

    def half_closed(self, end: SmallEnd) -> None:
        """Relay the FIN of `end`; the second FIN closes both connections."""
        if self._finished is not None and self._finished is not end:
            # The end that sent the first FIN gives the cause.
            self.close(self._finished.peer_closed_cause)
            return
        self._finished = end
        if end.peer.open and end.peer.transport is not None:
            end.peer.transport.write_eof()

    def end_lost(self, end: SmallEnd, cause: DisconnectCause) -> None:
        """Close the other connection after its pending bytes; call `on_end` if the client's connection has ended."""
        if end.peer.cause is None:
            end.peer.close(cause)
        else:
            end.loop.call_soon(self._dissolve)
        if end is self.client:
            self._count_moved()
            self._order.on_end(self, cause)

    def _dissolve(self) -> None:
        """Release what makes reference cycles of a relay that is over: only a full collection would free them."""
        if self.client.transport is not None or self.broker.transport is not None:
            self.client.loop.call_later(DISSOLVE_SECONDS, self._dissolve)
            return
        self.client.dissolve()
        self.broker.dissolve()

    @property
    def _half_open(self) -> bool:
        return self.fin_waits or self._finished is not None

    @property
    def _paused(self) -> bool:
        return stops_the_clock(self.client.paused | self.broker.paused)

    def _untaken(self) -> int:
        return self.client.untaken_bytes + self.broker.untaken_bytes

    def _sender(self, direction: Direction) -> SmallEnd:
        return self.client if direction is Direction.TO_BROKER else self.broker

    def _count_moved(self) -> None:
        client, broker = self.client, self.broker
        self.traffic.add(client.received, broker.received)
        client.received = broker.received = 0
