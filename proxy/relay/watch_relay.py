"""A relay that scans the broker's frames, so that topic lists for watchers pass under a direct permit.

Rule (docs/adr/0008): frames are streamed, never stored. The bytes before a watch frame are relayed, the rest of that
read waits in the buffer it was read into, and the broker is not read until the frame may pass: with a permit, or
without one after the longest pause. A connection that a raw relay would carry must not break here. When a frame may
pass is decided by `frame_permits`.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import ClassVar

from protocol.scanner import FrameMatch, FrameScanner
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from proxy.relay.counters import RelayCounters
from proxy.relay.engine import PauseReason, Relay
from proxy.relay.frame_permits import FramePermits
from proxy.relay.relay import SMALL_READ_SECONDS, AsyncioRelay, RelayEndpoint
from proxy.relay.watch_limits import WatchLimits
from proxy.telemetry.events.recorder import RequestOrigin


class WatchedEndpoint(RelayEndpoint):
    """The broker's endpoint of a relay.

    `_open` bytes of the watch frames that passed last have not been read yet. `_rest` holds the bytes that wait, from
    the first of the next watch frames (`_match`) on.
    """

    __slots__ = ("_fin_waits", "_key", "_limits", "_match", "_open", "_permits", "_rest", "_scanner", "origin")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        relay: AsyncioRelay,
        limits: WatchLimits,
        key: Hashable,
    ) -> None:
        super().__init__(loop, shared, hangup, relay, DisconnectCause.BROKER_CLOSED)
        self._limits = limits
        self._key = key
        self._scanner = FrameScanner()
        self._open = 0
        self._rest: list[memoryview] = []
        self._match: FrameMatch | None = None
        self._fin_waits = False
        # Most relays never see a watch frame: the permits are made at the first.
        self._permits: FramePermits | None = None
        # The client that events of this relay name; None without an event log.
        self.origin: RequestOrigin | None = None

    # --- reading ----------------------------------------------------------------------------------

    # The code for every read repeats RelayEndpoint's on purpose: CPython specializes a method for one class, and two
    # classes of endpoints would take turns in it. Repeated, it saves a fifth of our own time for a relayed KiB.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the same buffers as any relay."""
        return self._busy_buffer() if self._busy else self._shared.large

    def buffer_updated(self, nbytes: int) -> None:
        """Relay the bytes; from a watch frame on they may have to wait for a permit."""
        buffer = self._busy_buffer() if self._busy else self._shared.large
        try:
            self.received += nbytes
            if nbytes >= self.busy_bytes:
                self._busy_scan(buffer, nbytes)
                return
            match = self._scanner.scan(buffer, nbytes)
            self._busy = False
            if match is None and not self._open and not self._rest:
                peer = self.peer
                if peer.transport is None or self.cause is not None:
                    return
                peer.transport.write(buffer[:nbytes])
                if peer.writable is not True:
                    self._wait_for_peer(buffer)
            else:
                self._take_all(buffer, nbytes, match)
            turns = self.relay.loop_budget
            turns.small_reads -= 1
            if turns.small_reads < 0 and turns.small_reads_spent():
                self.rest(turns, SMALL_READ_SECONDS, network=self.relay.network)
        except Exception as error:
            self.crashed(error)

    def _measured_from(self) -> int:
        """Measure every read that could hold hundreds of frames."""
        return SMALL_READ_BYTES + 1

    def _busy_scan(self, buffer: memoryview, nbytes: int) -> None:
        """Relay the bytes of a read that is measured, its scan apart."""
        now = self.relay.loop_budget.now
        began = now()
        match = self._scanner.scan(buffer, nbytes)
        scanned = now() - began
        self._busy = self._cramped or nbytes >= self._bulk_bytes
        self._take_all(buffer, nbytes, match)
        self._judge(scanned, nbytes)
        self._spend(now() - began)
        if self.dripping:
            self.dripped()

    def _take_all(self, buffer: memoryview, nbytes: int, match: FrameMatch | None) -> None:
        if self._take(buffer[:nbytes], match):
            self._busy = self._cramped
            rest_in_buffer = bool(self._rest) and nbytes > SMALL_READ_BYTES
            if rest_in_buffer or (self.peer.write_pending and not self.peer.is_tls):
                self._shared.detach(buffer)
            self.pause_reading()

    def pass_first(self, data: bytes) -> None:
        """Relay the bytes that were read with the broker's handshake: CONNECTED, and maybe the first frames."""
        view = memoryview(data)
        if self._take(view, self._scanner.scan(view, len(view))):
            self.pause_reading()

    def stream_ended(self) -> None:
        """Relay the FIN, after the bytes that wait."""
        if self._rest:
            self._fin_waits = True
            return
        # After a FIN the rest of an unfinished frame will never come.
        self._open = 0
        if self._permits is not None:
            self._permits.settle()
        super().stream_ended()

    def lost(self, cause: DisconnectCause) -> None:
        """Cancel the wait and release the permit; bytes that wait are still sent to a client that is there."""
        goes_out = bool(self._rest) and self.peer.open
        if goes_out:
            self._write_rest()
        self._rest.clear()
        if self._permits is not None:
            self._permits.ended(passed=goes_out)
        super().lost(cause)

    def dissolve(self) -> None:
        """Release the permits, too: they know this endpoint."""
        self._permits = None
        super().dissolve()

    def crashed(self, error: BaseException) -> None:
        """Report an exception of this relay's code and abort the connection."""
        self._limits.counters.internal_error(error, "relay")
        super().crashed(error)

    def _take(self, data: memoryview, match: FrameMatch | None) -> bool:
        """Relay the bytes that may pass; return True if `data` is still in use, so reading must stop."""
        peer = self.peer
        if not peer.open or self.cause is not None:
            return False
        if match is not None:
            self._limits.count(match)
        if self._rest:
            # A transport may deliver once more after a pause.
            assert self._match is not None
            self._match.join(match, len(data))
            self._hold_rest(data, 0)
            return True
        start = len(data) if match is None else match.start
        if start:
            peer.write(data[:start])
        inside = min(start, self._open)
        self._open -= inside
        permits = self._permits
        if permits is not None:
            if inside and peer.write_pending:
                permits.charge(inside)
            permits.settle()
        if start < len(data):
            self._hold_rest(data, start)
            self._match = match
            self._note_frames(match)
        return bool(self._rest) or peer.write_pending

    def _hold_rest(self, data: memoryview, start: int) -> None:
        # In a crowd that waits, the rest of each small read would keep a whole buffer.
        rest = data[start:]
        self._rest.append(rest if len(data) > SMALL_READ_BYTES else memoryview(bytes(rest)))

    def _note_frames(self, match: FrameMatch | None) -> None:
        assert match is not None
        permits = self._permits
        if permits is None:
            permits = self._permits = FramePermits(self.loop, self._limits, self._key, self.origin, self)
        permits.arrived(match)
        if not self.peer.write_pending:
            permits.ask_in_turn(self.relay.loop_budget, self.relay.network)

    # --- the permits of frames (frame_permits.FrameHolder) -----------------------------------------

    @property
    def reasons(self) -> PauseReason:
        """Return the reasons of ours for which the broker is not read, a frame that waits among them."""
        return self.paused | PauseReason.WATCH if self._permits and self._permits.waiting else self.paused

    @property
    def held_bytes(self) -> int:
        """Return the size of the permit for the frames that pass now."""
        return 0 if self._permits is None else self._permits.held_bytes

    @property
    def client_waits(self) -> bool:
        """Return whether bytes for the client have not left user space yet."""
        return self.peer.write_pending

    @property
    def frame_open(self) -> bool:
        """Return whether a part of the frames that passed last is still to come."""
        return self._open > 0

    @property
    def client_cause(self) -> DisconnectCause | None:
        """Return why the client's connection has ended; None while it has not."""
        return self.peer.cause

    def peer_drained(self) -> None:
        """Called when the client has taken all bytes: release the permit, ask for the next, or read again."""
        if self.cause is not None:
            return
        permits = self._permits
        if permits is not None:
            permits.settle()
            # A TLS transport may drain for its own reasons, such as an answered key update, while a frame waits.
            if self._rest and not permits.waiting:
                permits.ask_in_turn(self.relay.loop_budget, self.relay.network)
        if not self._rest and self.may_read and not self.peer.write_pending:
            self.resume_reading()

    def pass_frames(self, match: FrameMatch) -> None:
        """Relay the bytes that wait."""
        self._open = match.open_bytes
        self._write_rest()

    def frames_passed(self) -> None:
        """Relay the FIN that waited behind the frames, or read again."""
        if self._fin_waits:
            self._fin_waits = False
            self.stream_ended()
        if self.may_read and not self.peer.write_pending:
            self.resume_reading()

    def _write_rest(self) -> None:
        rest, self._rest = self._rest, []
        for piece in rest:
            self.peer.write(piece)


class WatchedRelay(AsyncioRelay):
    """A relay that acquires permits for watch frames, charged to `key`."""

    __slots__ = ("_key", "_watch")
    watched_endpoint: ClassVar[type[WatchedEndpoint]] = WatchedEndpoint

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
        counters: RelayCounters,
        read_timeout_seconds: float,
        on_end: Callable[[Relay, DisconnectCause], None],
        *,
        watch: WatchLimits,
        key: Hashable,
    ) -> None:
        self._watch = watch
        self._key = key
        super().__init__(loop, shared, hangup, loop_budget, counters, read_timeout_seconds, on_end)

    def record_as(self, origin: RequestOrigin | None) -> None:
        """Record the watch frames of this relay in the event log, as requests of `origin`."""
        assert isinstance(self.broker, WatchedEndpoint)
        self.broker.origin = origin

    def make_broker_endpoint(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Return a broker endpoint that acquires permits for watch frames."""
        return self.watched_endpoint(loop, shared, hangup, self, self._watch, self._key)
