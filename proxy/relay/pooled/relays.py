"""Relays of the event loop that share a relay pool; without a pool none of these classes is made (docs/adr/0041).

Bytes that an endpoint has read and its peer has not taken are charged with the size of the buffer that is kept from the
loop. While memory is scarce a read is as large as the room in the peer's send queue, so that nothing is left over.
A read cannot be called off once the loop asks for a buffer: an endpoint whose peer has no room reads one byte into a
buffer of its own, and then waits.
"""

import asyncio
from typing import ClassVar

from proxy.core.errors import DisconnectCause
from proxy.net.transport import SharedReadBuffer
from proxy.relay.engine import PauseReason
from proxy.relay.pooled.turns import PoolTurns
from proxy.relay.relay import AsyncioRelay, RelayEndpoint
from proxy.relay.watch_relay import WatchedEndpoint, WatchedRelay


class PoolMixin(RelayEndpoint):
    """An endpoint that charges what its peer does not take."""

    turns: PoolTurns
    _own_shared: SharedReadBuffer
    _charged = 0
    _turn = False
    # The descriptor of the peer while this endpoint waits.
    _receiver = -1

    def adopt(self, transport: asyncio.Transport) -> None:
        """Adopt `transport`."""
        super().adopt(transport)
        self._own_shared = self._shared

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the usual buffer, or as much of one as the peer has room for while memory is scarce."""
        self._shared = self._own_shared
        if self._turn or not self.turns.books.pool_scarce():
            return super().get_buffer(sizehint)
        room = self._room()
        if room:
            return super().get_buffer(sizehint)[:room]
        self._shared = self.turns.tiny
        return super().get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Relay the bytes, charge what the peer did not take, and wait if there is neither memory nor room."""
        shared = self._shared
        # The loop's buffer is kept whole, however little of it is left.
        kept = len(shared.bulk if self._busy and not self._cramped else shared.large)
        super().buffer_updated(nbytes)
        self._shared = self._own_shared
        if self._keeps_bytes:
            self._charge(kept if self._rest_waits or not self.peer.is_tls else self.peer.unsent_bytes)
        if self._turn:
            self.turns.turn_over(self)
        self._wait_if_scarce()

    def peer_drained(self) -> None:
        """Release the memory, and read again if there is room."""
        self._settle_charge()
        self._wait_if_scarce()
        super().peer_drained()

    def lost(self, cause: DisconnectCause) -> None:
        """End both waits: this endpoint reads no more, and takes no more."""
        for endpoint in (self, self.peer):
            if isinstance(endpoint, PoolMixin):
                endpoint._leave_line()
        self.turns.turn_over(self)
        super().lost(cause)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what was held for a connection that is gone."""
        super().connection_lost(exc)
        for endpoint in (self, self.peer):
            if isinstance(endpoint, PoolMixin) and endpoint.peer.transport is None:
                endpoint._charge(0)

    def begin_turn(self) -> None:
        """Read once, however much."""
        self._turn = True
        self._end_wait()

    def end_turn(self) -> None:
        """Read no more than the rules say from now on."""
        self._turn = False

    def room_again(self) -> None:
        """Read on: the peer takes bytes."""
        if self._room():
            self._end_wait()

    def _room(self) -> int:
        peer = self.peer
        return 0 if peer.write_pending else self.turns.room(peer.transport, peer.fd, is_tls=peer.is_tls)

    @property
    def _rest_waits(self) -> bool:
        return False

    @property
    def _keeps_bytes(self) -> bool:
        return self.peer.transport is not None and (self.peer.write_pending or self._rest_waits)

    def _wait_if_scarce(self) -> None:
        if (
            not self._turn
            and self.open
            and self.peer.open
            and not self.paused & PauseReason.POOL
            and not self._keeps_bytes
            and self.turns.books.pool_scarce()
            and not self._room()
        ):
            self.pause_for(PauseReason.POOL)
            self._receiver = self.peer.fd
            self.turns.wait(self, self._receiver)

    def _leave_line(self) -> None:
        self.turns.forget(self, self._receiver)
        self._receiver = -1

    def _end_wait(self) -> None:
        self._leave_line()
        self.resume_for(PauseReason.POOL)

    def _settle_charge(self) -> None:
        if self._charged and not self._keeps_bytes:
            self._charge(0)

    def _charge(self, size: int) -> None:
        if size != self._charged:
            before, self._charged = self._charged, size
            self.turns.books.pool_change(before, size)
            if size < before:
                self.turns.look()


class _PoolWatchMixin(PoolMixin, WatchedEndpoint):
    """A broker endpoint that also keeps the bytes of frames that wait for their permit."""

    def frames_passed(self) -> None:
        """Release the memory of the frames, unless the client has still to take them."""
        self._settle_charge()
        super().frames_passed()

    @property
    def _rest_waits(self) -> bool:
        return bool(self._rest)


class PooledEndpoint(PoolMixin):
    """A client or broker endpoint."""


class PooledWatchedEndpoint(_PoolWatchMixin):
    """A broker endpoint that acquires permits for watch frames."""


class PoolRelayMixin(AsyncioRelay):
    """A relay whose endpoints share a pool; `turns` is set before it starts."""

    client: PoolMixin
    broker: PoolMixin
    plain_endpoint: ClassVar[type[RelayEndpoint]] = PooledEndpoint

    def share(self, turns: PoolTurns) -> None:
        """Charge the pool of `turns` from now on."""
        self.client.turns = self.broker.turns = turns

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Start to relay; what came with the handshakes never waits."""
        super().start(client, broker, to_client, to_broker)
        for endpoint in (self.client, self.broker):
            if endpoint.peer.write_pending:
                endpoint._charge(endpoint.peer.unsent_bytes)


class PooledRelay(PoolRelayMixin):
    """A plain relay."""


class PooledWatchedRelay(PoolRelayMixin, WatchedRelay):
    """A relay that acquires permits for watch frames."""

    watched_endpoint = PooledWatchedEndpoint
