"""Relay raw bytes between a client and its broker on the event loop, with coupled backpressure.

No frame is parsed here; `watch_relay` parses one direction. If an endpoint does not take its bytes, the other endpoint
is not read: at most one read is held per direction, in the loop's own read buffer. The buffer is detached until the
bytes have left, so no copy is made, and two relays never share a buffer that is still being sent.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Hashable
from typing import ClassVar, Final

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import (
    DISSOLVE_SECONDS,
    LARGE_READ_BYTES,
    SMALL_READ_BYTES,
    Endpoint,
    SealedStream,
    SharedReadBuffer,
    Truncation,
    peer_name,
)
from proxy.relay.counters import RelayCounters
from proxy.relay.engine import (
    DRIPPED_THROUGH,
    NOT_PAUSED,
    Direction,
    PauseReason,
    Relay,
    RelaySnapshot,
    stops_the_clock,
)
from proxy.relay.memory.sockets import ReceivedMemory, SocketMemory, received_of
from proxy.relay.memory.windows import ReceiveWindow, note_received, weigh
from proxy.relay.traffic import MaybeMetered, RelayRates, RelayTraffic

# A busy endpoint is read for this long before others have their turn.
TURN_SECONDS: Final = 0.0005
# A read whose frames took longer than this to parse is followed by small reads.
COSTLY_READ_SECONDS: Final = 0.001
# A turn of a relay that is read a little at a time: the read, the write, and what the loop does for both.
SMALL_READ_SECONDS: Final = 0.00002


class RelayEndpoint(Endpoint):
    """A connection of a relay, the client's or the broker's; the bytes that are read from it go to `peer`.

    A read of `busy_bytes` or more is measured: an endpoint that took its share of the loop's time rests until its next
    turn. Smaller reads are counted together, and rest when the time of the iteration is over: each takes little, but an
    iteration reads every socket that has bytes. `_busy` endpoints are read into the bulk buffer, or if `_cramped`,
    because their frames take longer to parse than their bytes to move, into the small one.
    """

    __slots__ = (
        "_bulk_bytes", "_busy", "_closed_cause", "_cramped", "_turn_seconds", "busy_bytes", "dripping", "paused",
        "peer", "reads", "received", "relay", "window",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        relay: "AsyncioRelay",
        closed_cause: DisconnectCause,
    ) -> None:
        super().__init__(loop, shared, hangup)
        self._closed_cause = closed_cause
        self.relay = relay
        self.received = 0
        self.reads = 0
        self._busy = self._cramped = False
        self._turn_seconds = 0.0
        self._bulk_bytes = self.busy_bytes = LARGE_READ_BYTES
        # Reasons of ours not to read this endpoint, beside a peer that does not take its bytes; a drip passes some.
        self.paused = NOT_PAUSED
        self.dripping = False
        self.peer: RelayEndpoint = self
        self.window: ReceiveWindow | None = None

    def adopt(self, transport: asyncio.Transport) -> None:
        """Adopt `transport`; with TLS a half-full read counts as busy, because records seldom fill a buffer."""
        super().adopt(transport)
        self._bulk_bytes = LARGE_READ_BYTES // 2 if self.is_tls else LARGE_READ_BYTES
        self.busy_bytes = self._measured_from()

    def _measured_from(self) -> int:
        """Return the size of the smallest read that is measured."""
        return self._bulk_bytes

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Return the disconnect cause for an endpoint that its remote side closes."""
        return self._closed_cause

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the loop's large buffer, or the bulk buffer after a read that filled the large one."""
        return self._busy_buffer() if self._busy else self._shared.large

    def _busy_buffer(self) -> memoryview:
        return self._shared.small if self._cramped else self._shared.bulk

    def buffer_updated(self, nbytes: int) -> None:
        """Write the bytes to the peer, and stop reading if the kernel did not take them all."""
        self.received += nbytes
        self.reads += 1
        if nbytes >= self.busy_bytes:
            self._busy_read(nbytes)
            return
        peer = self.peer
        if peer.transport is None or self.cause is not None:
            return
        buffer = self._busy_buffer() if self._busy else self._shared.large
        self._busy = False
        peer.transport.write(buffer[:nbytes])
        if peer.writable is not True:
            self._wait_for_peer(buffer)
        turns = self.relay.loop_budget
        turns.small_reads -= 1
        if turns.small_reads < 0 and turns.small_reads_spent():
            self.rest(turns, SMALL_READ_SECONDS, network=self.relay.network)

    def _busy_read(self, nbytes: int) -> None:
        """Write the bytes of a read that is measured to the peer."""
        peer = self.peer
        if peer.transport is None or self.cause is not None:
            return
        now = self.relay.loop_budget.now
        began = now()
        buffer = self._busy_buffer() if self._busy else self._shared.large
        self._busy = self._cramped or nbytes >= self._bulk_bytes
        peer.transport.write(buffer[:nbytes])
        if peer.writable is not True:
            self._wait_for_peer(buffer)
        self._judge(0.0, nbytes)
        self._spend(now() - began)
        if self.dripping:
            self.dripped()

    def _judge(self, seconds: float, nbytes: int) -> None:
        """Choose the size of later reads: `seconds` went into parsing the frames of `nbytes` bytes."""
        if seconds > COSTLY_READ_SECONDS:
            self.cramp()
        elif self._cramped and nbytes >= SMALL_READ_BYTES and seconds * LARGE_READ_BYTES < COSTLY_READ_SECONDS * nbytes:
            self._cramped = self._busy = False
            self.busy_bytes = self._measured_from()

    def cramp(self) -> None:
        """Read little at a time from now on, until the frames are large."""
        self._cramped = self._busy = True
        self.busy_bytes = 0

    def _spend(self, seconds: float) -> None:
        """Count `seconds` of this turn, and rest after the share of one connection, or of one iteration of the loop."""
        turns = self.relay.loop_budget
        if self.window is not None and self.window.narrow:
            self.window.prove(self.transport, self.received)
        self._turn_seconds += seconds
        if self._turn_seconds >= TURN_SECONDS or turns.spent():
            spent, self._turn_seconds = self._turn_seconds, 0.0
            # The next turn may take its whole share, however little this one took.
            self.rest(turns, max(spent, TURN_SECONDS))

    def _wait_for_peer(self, buffer: memoryview) -> None:
        self._busy = self._cramped
        if not self.peer.is_tls:
            self._shared.detach(buffer)
        self.pause_reading()

    def pass_first(self, data: bytes) -> None:
        """Relay the bytes that were read together with the handshake."""
        self.peer.write(data)
        if self.peer.write_pending:
            self.pause_reading()

    def resume_writing(self) -> None:
        """Mark this endpoint writable, and let the peer read again: its bytes have left."""
        super().resume_writing()
        self.peer.peer_drained()

    def peer_drained(self) -> None:
        """Called when the peer's bytes have all left: read again."""
        if self.may_read:
            self.resume_reading()

    def pause_for(self, reason: PauseReason) -> None:
        """Stop reading, for one more reason."""
        self.paused |= reason
        if not self.may_read:
            self.pause_reading()

    def resume_for(self, reason: PauseReason) -> None:
        """Read again, unless another reason is left or the peer has bytes to take."""
        self.paused &= ~reason
        if self.may_read and not self.peer.write_pending:
            self.peer_drained()

    @property
    def may_read(self) -> bool:
        """Return whether no reason stops reading, or a drip is under way that the reasons left do not stop."""
        return not self.paused or (self.dripping and not self.paused & ~DRIPPED_THROUGH)

    def drip(self, *, whole_read: bool = False) -> None:
        """Read one frame in spite of a pause, or once; nothing more while that is under way."""
        if self.paused and not self.dripping:
            self.dripping = True
            # The next read is measured, and so ends the drip.
            self.busy_bytes = 0
            if self.may_read and not self.peer.write_pending:
                self.peer_drained()

    def dripped(self) -> None:
        """End a drip after its read."""
        self.dripping = False
        self.busy_bytes = 0 if self._cramped else self._measured_from()
        if self.paused:
            self.pause_reading()

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the permit for frames from this endpoint."""
        return 0

    def _outlives(self) -> bool:
        return self.unsent_bytes > 0 or super()._outlives()

    @property
    def reasons(self) -> PauseReason:
        """Return the reasons of ours for which this endpoint is not read."""
        return self.paused

    @property
    def truncation(self) -> Truncation | None:
        """Return where this endpoint's stream was cut off; always None without TLS, where a FIN says all there is."""
        return self.transport.truncation if isinstance(self.transport, SealedStream) else None

    def stream_ended(self) -> None:
        """Relay the FIN and keep the other direction open; the second FIN ends the relay."""
        self.relay.half_closed(self)

    def dissolve(self) -> None:
        """Release the other endpoint and the relay: both connections are over."""
        del self.peer, self.relay

    def lost(self, cause: DisconnectCause) -> None:
        """End the relay."""
        self.relay.endpoint_lost(self, cause)

    def _cause_of(self, exc: Exception | None) -> DisconnectCause:
        if isinstance(exc, OSError) and exc.errno == errno.ETIMEDOUT:
            return DisconnectCause.WRITE_STALLED
        return super()._cause_of(exc)

    def _hung_up(self, gone: bool) -> None:
        error = self._socket_error() if gone else 0
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

    def _socket_error(self) -> int:
        assert self.transport is not None
        error: int = self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return error


class AsyncioRelay(MaybeMetered):
    """A client and its broker. `on_end` is called once, when the client's connection has ended.

    A subclass chooses other classes of endpoints: `WatchedRelay` acquires permits for watch frames.
    """

    __slots__ = (
        "_counters", "_cut_off", "_finished", "_on_end", "_traffic", "broker", "broker_name", "client", "client_name",
        "fin_waits", "loop_budget", "meter", "network", "principal",
    )  # fmt: skip
    plain_endpoint: ClassVar[type[RelayEndpoint]] = RelayEndpoint

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
        counters: RelayCounters,
        read_timeout_seconds: float,
        on_end: Callable[[Relay, DisconnectCause], None],
    ) -> None:
        self.loop_budget = loop_budget
        self.client = self.plain_endpoint(loop, shared, hangup, self, DisconnectCause.CLIENT_CLOSED)
        self.broker = self.make_broker_endpoint(loop, shared, hangup)
        self.client.peer = self.broker
        self.broker.peer = self.client
        self._counters = counters
        self._on_end = on_end
        self._finished: RelayEndpoint | None = None
        # A FIN has come that is not read yet: bytes in front of it wait for their receiver.
        self.fin_waits = False
        self._cut_off: RelayEndpoint | None = None
        # Bytes up to the last look; the endpoints' `received` counts the bytes since then, so that it stays small.
        self._traffic = RelayTraffic(counters, loop.time(), read_timeout_seconds)
        self.client_name = self.broker_name = "?"
        self.principal: Hashable = None
        self.meter = None
        self.network: Hashable = None

    def make_broker_endpoint(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Return the endpoint of the broker's connection."""
        return self.plain_endpoint(loop, shared, hangup, self, DisconnectCause.BROKER_CLOSED)

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Adopt both transports, relay the bytes that came with the handshakes, and start reading."""
        self.broker_name = peer_name(broker)
        for endpoint, transport in ((self.client, client), (self.broker, broker)):
            endpoint.adopt(transport)
            transport.set_protocol(endpoint)
        for side, received in ((client, to_broker), (broker, to_client)):
            if isinstance(side, SealedStream):
                side.follow_frames(received)
        for endpoint, first_bytes in ((self.broker, to_client), (self.client, to_broker)):
            if first_bytes:
                endpoint.pass_first(first_bytes)
        for endpoint in (self.client, self.broker):
            if endpoint.reading and endpoint.transport is not None:
                endpoint.transport.resume_reading()

    @property
    def busy(self) -> bool:
        """Return True: a drain waits, because a relayed client may always be in the middle of a frame."""
        return True

    @property
    def rates(self) -> RelayRates:
        """Return the rates between the last two ticks."""
        return self._traffic.rates

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of the client that wait in the kernel to be read."""
        return self.client.unread_bytes()

    def snapshot(self) -> RelaySnapshot:
        """Return the relay as it is now."""
        self._count_moved()
        traffic, client, broker = self._traffic, self.client, self.broker
        return RelaySnapshot(
            moved=(traffic.to_broker_bytes, traffic.to_client_bytes),
            unsent=(broker.unsent_bytes, client.unsent_bytes),
            paused=(client.reasons, broker.reasons),
            permit_bytes=broker.held_bytes,
            half_open=self.half_open,
            untaken_bytes=self._untaken(),
        )

    def socket_bytes(self) -> SocketMemory:
        """Return the kernel memory of both sockets, and widen or narrow their windows."""
        return SocketMemory(weigh(self.broker), weigh(self.client))

    @property
    def moved_lately(self) -> int:
        """Return the bytes that were read between the last two calls of `socket_bytes`."""
        return sum(each.window.moved for each in (self.client, self.broker) if each.window is not None)

    def received_bytes(self) -> ReceivedMemory:
        """Return the kernel memory of what was received and is not read."""
        return ReceivedMemory(received_of(self.broker.transport), received_of(self.client.transport))

    def pause(self, direction: Direction, reason: PauseReason) -> None:
        """Stop to read the sender of `direction`, for one more reason."""
        self._sender(direction).pause_for(reason)

    def resume(self, direction: Direction, reason: PauseReason) -> None:
        """Read the sender of `direction` again, unless another reason is left or its receiver has bytes to take."""
        was_paused = self._paused
        self._sender(direction).resume_for(reason)
        if was_paused and not self._paused:
            self._traffic.pause_ended(self.client.loop.time())

    def drip(self, direction: Direction, *, whole_read: bool = False) -> None:
        """Pass one whole frame, or one read, although a threshold or a rate pauses `direction`."""
        self._sender(direction).drip(whole_read=whole_read)

    def set_read_timeout(self, seconds: float) -> None:
        """Change the read time-out; the idle time so far counts."""
        self._traffic.read_timeout_seconds = seconds

    def tick(self, now: float) -> None:
        """Update rates and counters; abort the relay if no byte has moved for the read time-out."""
        self._count_moved()
        if self._traffic.tick(now, self.client.reads, self._untaken, paused=self._paused, half_open=self.half_open):
            self.abort(DisconnectCause.READ_TIMEOUT)

    def retire(self, now_or_never: bool) -> None:
        """Close a relay that is old enough, if no byte has moved since the last call or `now_or_never` is set."""
        self._count_moved()
        if self._traffic.idle_since_retire() or now_or_never:
            self.close(DisconnectCause.CONNECTION_AGE)

    def close(self, cause: DisconnectCause) -> None:
        """Close both connections after their pending bytes have left."""
        self.client.close(cause)

    def abort(self, cause: DisconnectCause) -> None:
        """Close both connections at once."""
        self.client.abort(cause)
        self.broker.abort(cause)

    @property
    def half_open(self) -> bool:
        """Return whether client or broker has sent its FIN."""
        return self.fin_waits or self._finished is not None

    def finished_by(self, endpoint: RelayEndpoint) -> bool:
        """Return whether the FIN of `endpoint` was the first."""
        return self._finished is endpoint

    def half_closed(self, endpoint: RelayEndpoint) -> None:
        """Relay the FIN of `endpoint`; the second FIN closes both connections."""
        if self._finished is not None and self._finished is not endpoint:
            # The endpoint that sent the first FIN gives the cause.
            self.close(self._finished.peer_closed_cause)
            return
        self._finished = endpoint
        truncation = endpoint.truncation
        if truncation is not None:
            self._counters.truncations[truncation] += 1
        if truncation is Truncation.INSIDE_FRAME:
            # A FIN would say that this is all.
            self._cut_off = endpoint
            endpoint.peer.reset_when_delivered(DisconnectCause.TRUNCATED)
            return
        peer = endpoint.peer.transport
        if peer is None or endpoint.peer.cause is not None:
            return
        if peer.can_write_eof():
            peer.write_eof()
        else:
            # TLS has no half-close that peers honour: close both connections.
            self.close(endpoint.peer_closed_cause)

    def endpoint_lost(self, endpoint: RelayEndpoint, cause: DisconnectCause) -> None:
        """Close the other connection after its pending bytes; call `on_end` if the client's connection has ended."""
        if endpoint.peer.cause is not None:
            endpoint.loop.call_soon(self._dissolve)
        if endpoint.peer.cause is None and endpoint is not self._cut_off:
            if endpoint is self.broker and endpoint.truncation is Truncation.INSIDE_FRAME:
                # An RST in the middle of an answer: a FIN, or a close_notify, would say that this is all.
                self._counters.truncations[Truncation.INSIDE_FRAME] += 1
                endpoint.peer.reset_when_delivered(cause)
            else:
                endpoint.peer.close(cause)
        if endpoint is self.client:
            self._count_moved()
            self._on_end(self, cause)

    def _dissolve(self) -> None:
        """Release what makes reference cycles of a relay that is over: only a full collection would free them."""
        if self.client.transport is not None or self.broker.transport is not None:
            self.client.loop.call_later(DISSOLVE_SECONDS, self._dissolve)
            return
        self.client.dissolve()
        self.broker.dissolve()

    @property
    def _paused(self) -> bool:
        return stops_the_clock(self.client.reasons | self.broker.reasons)

    def _untaken(self) -> int:
        return self.client.untaken_bytes + self.broker.untaken_bytes

    def _sender(self, direction: Direction) -> RelayEndpoint:
        return self.client if direction is Direction.TO_BROKER else self.broker

    def _count_moved(self) -> None:
        client, broker = self.client, self.broker
        self._traffic.add(client.received, broker.received)
        note_received(client, broker)
        client.received = broker.received = 0
