"""Relay raw bytes between a client and its broker, with coupled backpressure.

Nothing is parsed here; `watch_relay` looks at one direction. What one side does not take stops the reading of the
other: at most one read is held per direction, and it is held in the loop's read buffer itself, which is surrendered
to the slow side until it has left (no copy is made, and two relays never share a buffer that is still being sent).
"""

import asyncio
import socket
from collections.abc import Callable, Hashable
from typing import NamedTuple

from proxy.core.errors import DisconnectCause
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import LARGE_READ_BYTES, Endpoint, SharedReadBuffer, peer_name
from proxy.relay.counters import RelayCounters


class RelayEndpoint(Endpoint):
    """One side of a relayed pair: what it reads goes to `peer`."""

    __slots__ = ("_bulk", "_closed_cause", "busy_bytes", "peer", "reads", "received", "relay")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        relay: "Relay",
        closed_cause: DisconnectCause,
    ) -> None:
        super().__init__(loop, shared, hangup)
        self._closed_cause = closed_cause
        self.relay = relay
        self.received = 0
        self.reads = 0
        self._bulk = False
        self.busy_bytes = LARGE_READ_BYTES
        self.peer: RelayEndpoint = self

    def adopt(self, transport: asyncio.Transport) -> None:
        """Learn what a full read is: records seldom end where a place does."""
        super().adopt(transport)
        self.busy_bytes = LARGE_READ_BYTES // 2 if self.sealed else LARGE_READ_BYTES

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Name the end of this side when its peer closes it."""
        return self._closed_cause

    def get_buffer(self, sizehint: int) -> memoryview:
        """Read into the loop's large buffer, or its bulk buffer while there is more than the large one holds."""
        return self._shared.bulk if self._bulk else self._shared.large

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the bytes on, and stop reading if the other side did not take them all."""
        self.received += nbytes
        self.reads += 1
        peer = self.peer
        if peer.transport is None or self.cause is not None:
            return
        place = self._shared.bulk if self._bulk else self._shared.large
        self._bulk = nbytes >= self.busy_bytes
        peer.transport.write(place[:nbytes])
        if peer._writable is not True:
            self._wait_for_peer(place)

    def _wait_for_peer(self, place: memoryview) -> None:
        self._bulk = False
        if not self.peer.sealed:
            self._shared.surrender(place)
        self.pause_reading()

    def pass_first(self, data: bytes) -> None:
        """Pass on what came behind this side's handshake."""
        self.peer.write(data)
        if self.peer.write_pending:
            self.pause_reading()

    def resume_writing(self) -> None:
        """Let the other side go on: what it sent has left."""
        super().resume_writing()
        self.peer.peer_drained()

    def peer_drained(self) -> None:
        """Read again: the other side has taken everything."""
        self.resume_reading()

    @property
    def held_bytes(self) -> int:
        """Count the bytes of permits that are held for what this side sends."""
        return 0

    @property
    def unsent_bytes(self) -> int:
        """Count the bytes that wait in user space for this side to take them."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def waits_for_memory(self) -> bool:
        """Tell whether this side is not read because there is no memory for what it sends."""
        return False

    def stream_ended(self) -> None:
        """Pass a FIN on and keep the other direction; the second FIN ends the pair."""
        self.relay.half_closed(self)

    def lost(self, cause: DisconnectCause) -> None:
        """End the pair."""
        self.relay.end_lost(self, cause)

    def _hung_up(self, gone: bool) -> None:
        if gone and self.relay.finished_by(self.peer) and not self._socket_error():
            # With the FINs of both sides a socket is called gone, too: what it still holds is not lost. Only reading
            # can tell more now.
            return
        if gone:
            self.abort(DisconnectCause.CONNECTION_RESET)
        elif self.cause is None and not self._reading:
            # With a FIN alone there may be bytes left to pass on; from here only the end of the peer counts.
            self._hangup.watch(self.fd, self._hung_up, half_close=False)

    def _socket_error(self) -> int:
        assert self.transport is not None
        error: int = self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return error


class RelayRates(NamedTuple):
    """What a client sent between the last two looks, a second: reads of its socket, and bytes."""

    reads: float
    size_bytes: float


class Relay:
    """A client and its broker, joined. `on_end` is called once, when the client's side is gone."""

    __slots__ = (
        "_at_last_look",
        "_counters",
        "_finished",
        "_idle_since",
        "_on_end",
        "_read_timeout_seconds",
        "_seen",
        "_told_at",
        "broker",
        "broker_name",
        "client",
        "client_name",
        "principal",
        "rates",
        "to_broker_bytes",
        "to_client_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        counters: RelayCounters,
        read_timeout_seconds: float,
        on_end: Callable[["Relay", DisconnectCause], None],
    ) -> None:
        self.client = self.make_client_end(loop, shared, hangup)
        self.broker = self.make_broker_end(loop, shared, hangup)
        self.client.peer = self.broker
        self.broker.peer = self.client
        self._counters = counters
        self._read_timeout_seconds = read_timeout_seconds
        self._on_end = on_end
        self._finished: RelayEndpoint | None = None
        self._seen = 0
        self._at_last_look = -1
        self._idle_since = self._told_at = loop.time()
        self.client_name = self.broker_name = "?"
        self.principal: Hashable = None
        # Up to the last look: what the ends have `received` since comes on top.
        self.to_broker_bytes = self.to_client_bytes = 0
        self.rates = RelayRates(0.0, 0.0)

    def make_client_end(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Make the side that reads the client."""
        return RelayEndpoint(loop, shared, hangup, self, DisconnectCause.CLIENT_CLOSED)

    def make_broker_end(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Make the side that reads the broker."""
        return RelayEndpoint(loop, shared, hangup, self, DisconnectCause.BROKER_CLOSED)

    def start(
        self,
        client: asyncio.Transport,
        broker: asyncio.Transport,
        to_client: bytes,
        to_broker: bytes,
    ) -> None:
        """Take over both transports, send what came behind the handshakes, and read on."""
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
    def busy(self) -> bool:
        """Tell whether a drain has to wait: a relayed client is always in the middle of something."""
        return True

    def set_read_timeout(self, seconds: float) -> None:
        """Change the read timeout; the silence so far counts."""
        self._read_timeout_seconds = seconds

    def tick(self, now: float) -> None:
        """Take the rates since the last time, and end a pair in which no byte has moved for the read timeout."""
        self._take_rates(now)
        self._flush_counters()
        seen = self.client.received + self.broker.received
        if seen != self._seen or self.broker.waits_for_memory:
            self._seen, self._idle_since = seen, now
        elif self._read_timeout_seconds and now - self._idle_since >= self._read_timeout_seconds:
            self.abort(DisconnectCause.READ_TIMEOUT)

    def retire(self, now_or_never: bool) -> None:
        """End a pair that is old enough, once nothing has moved since the last time this was asked."""
        moved = self.client.received + self.broker.received
        if now_or_never or moved == self._at_last_look:
            self.close(DisconnectCause.CONNECTION_AGE)
        self._at_last_look = moved

    def close(self, cause: DisconnectCause) -> None:
        """End both sides after what they hold has left."""
        self.client.close(cause)

    def abort(self, cause: DisconnectCause) -> None:
        """End both sides now."""
        self.client.abort(cause)
        self.broker.abort(cause)

    @property
    def half_open(self) -> bool:
        """Tell whether one side has sent its FIN."""
        return self._finished is not None

    def finished_by(self, end: RelayEndpoint) -> bool:
        """Tell whether `end` was the first to send its FIN."""
        return self._finished is end

    def half_closed(self, end: RelayEndpoint) -> None:
        """Pass on that `end` will send no more."""
        if self._finished is not None and self._finished is not end:
            # Who left first is why the pair ends.
            self.close(self._finished.peer_closed_cause)
            return
        self._finished = end
        peer = end.peer.transport
        if peer is None or end.peer.cause is not None:
            return
        if peer.can_write_eof():
            peer.write_eof()
        else:
            # TLS: the other side cannot be told without ending it.
            self.close(end.peer_closed_cause)

    def end_lost(self, end: RelayEndpoint, cause: DisconnectCause) -> None:
        """End the other side too; what it was sent already still goes out."""
        if end.peer.cause is None:
            end.peer.close(cause)
        if end is self.client:
            self._flush_counters()
            self._on_end(self, cause)

    def _take_rates(self, now: float) -> None:
        seconds = now - self._told_at
        if seconds > 0:
            self.rates = RelayRates(self.client.reads / seconds, self.client.received / seconds)
            self._told_at, self.client.reads = now, 0

    def _flush_counters(self) -> None:
        counters, client, broker = self._counters, self.client, self.broker
        moved = client.received + broker.received
        counters.relay_bytes_to_broker += client.received
        counters.relay_bytes_to_client += broker.received
        self.to_broker_bytes += client.received
        self.to_client_bytes += broker.received
        counters.binary_bytes += moved
        self._seen -= moved
        client.received = broker.received = 0
