"""A relay that scans the broker's frames, so that topic lists for watchers pass under a direct permit.

Rules (docs/adr/0008):
- Frames are streamed, never stored. The bytes before a watch frame are relayed, the rest of that read waits in the
  buffer it was read into, and the broker is not read until the frame may pass: with a permit, or without one after the
  longest pause. A connection that a raw relay would carry must not break here.
- A permit is for bytes that came, never for bytes that were announced. The permit ends when the client has taken them;
  later bytes of the frame take another permit if the client leaves them lying.
- All permits together take a part of direct memory only: a broker is what its client calls a broker.
"""

import asyncio
from collections.abc import Callable, Hashable

from limiter.errors import PermitAcquireAlreadyClosed, PermitAcquireError, PermitAcquireQueueFull
from limiter.permit import Permit
from protocol.scanner import FrameMatch, FrameScanner
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from proxy.relay.counters import RelayCounters, WatchOvershoot
from proxy.relay.relay import Relay, RelayEndpoint
from proxy.relay.watch_limits import WatchLimits
from proxy.telemetry.events.direct_records import DirectRecord
from proxy.telemetry.events.recorder import RequestOrigin


class WatchedEndpoint(RelayEndpoint):
    """The broker's endpoint of a relay.

    `_permit` covers bytes of watch frames that the client has not taken; of the last of these frames `_open` bytes have
    not been read yet. `_rest` holds the bytes that wait, from the first of the next watch frames (`_match`) on. With an
    event log `_passing` is the record of the frames that pass, `_arriving` that of the frames that wait.
    """

    __slots__ = (
        "_arriving",
        "_fin_waits",
        "_key",
        "_limits",
        "_match",
        "_next_pause",
        "_open",
        "_overshot",
        "_passing",
        "_passing_frames",
        "_permit",
        "_rest",
        "_scanner",
        "_scope",
        "_timer",
        "_waiting",
        "origin",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        relay: Relay,
        limits: WatchLimits,
        key: Hashable,
    ) -> None:
        super().__init__(loop, shared, hangup, relay, DisconnectCause.BROKER_CLOSED)
        self._limits = limits
        self._key = key
        self._scanner = FrameScanner()
        self._permit: Permit | None = None
        self._open = 0
        # Counted already: these frames passed, at least in part, without a permit.
        self._overshot = False
        self._rest: list[memoryview] = []
        self._match: FrameMatch | None = None
        self._waiting = False
        self._next_pause = 0.0
        self._fin_waits = False
        self._timer: asyncio.TimerHandle | None = None
        # Most relays never wait: the scope is made at the first wait.
        self._scope: TaskScope | None = None
        # The client that events of this relay name; None without an event log.
        self.origin: RequestOrigin | None = None
        self._arriving: DirectRecord | None = None
        self._passing: DirectRecord | None = None
        self._passing_frames = ("", 0)

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
                return
            self._take_all(buffer, nbytes, match)
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

    def _take_all(self, buffer: memoryview, nbytes: int, match: FrameMatch | None) -> None:
        if self._take(buffer[:nbytes], match):
            self._busy = self._cramped
            if self._rest or not self.peer.is_tls:
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
        self._settle_permit()
        super().stream_ended()

    def lost(self, cause: DisconnectCause) -> None:
        """Cancel the wait and release the permit; bytes that wait are still sent to a client that is there."""
        if self._scope is not None:
            self._scope.cancel()
        if self._rest and self.peer.open:
            self._limits.overshot(WatchOvershoot.BROKER_GONE)
            self._write_rest()
            self._end_passing("ok")
            self._record_passing(None)
        self._rest.clear()
        self._record_cut()
        self._pass_over()
        super().lost(cause)

    def dissolve(self) -> None:
        """Release the tasks, too: none is left."""
        self._scope = None
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
            self._rest.append(data)
            return True
        start = len(data) if match is None else match.start
        if start:
            peer.write(data[:start])
        inside = min(start, self._open)
        self._open -= inside
        if inside and self._permit is None and peer.write_pending:
            self._charge(inside)
        self._settle_permit()
        if start < len(data):
            self._rest.append(data[start:])
            self._match = match
            if self.origin is not None and self._limits.recorder is not None:
                self._arriving = DirectRecord(self._limits.recorder, self.origin)
            if not peer.write_pending:
                self._ask()
        return bool(self._rest) or peer.write_pending

    # --- waiting for a permit ---------------------------------------------------------------------

    @property
    def waits_for_memory(self) -> bool:
        """Return whether a watch frame waits for its permit."""
        return self._waiting

    @property
    def held_bytes(self) -> int:
        """Return the size of the permit for the frames that pass now."""
        return 0 if self._permit is None else self._permit.size

    def peer_drained(self) -> None:
        """Called when the client has taken all bytes: release the permit, ask for the next, or read again."""
        if self.cause is not None:
            return
        self._settle_permit()
        # A TLS transport may drain for its own reasons, such as an answered key update, while a frame waits.
        if self._rest and not self._waiting:
            self._ask()
        if not self._rest and not self.peer.write_pending:
            self.resume_reading()

    def _ask(self) -> None:
        """Relay the bytes that wait if a permit is granted at once or not needed; else wait for a permit."""
        limits = self._limits
        assert self._match is not None
        self._pass_over()
        if not limits.enabled:
            self._arriving = None
            self._let_pass(None)
        elif limits.direct.closed:
            self._overshoot(WatchOvershoot.CLOSED)
        else:
            size = min(self._match.frame_bytes - self._match.open_bytes, limits.window_bytes)
            if self._arriving is not None:
                self._arriving.asks(size)
            if not limits.in_share(size):
                self._overshoot(WatchOvershoot.SHARE)
                return
            permit = limits.direct.try_acquire(size, key=self._key)
            if permit is not None:
                self._let_pass(permit)
            elif limits.max_pause_seconds <= 0:
                self._overshoot(WatchOvershoot.PAUSE_OVER)
            elif self.loop.time() < self._next_pause:
                self._overshoot(WatchOvershoot.PAUSED_BEFORE)
            else:
                self._start_waiting(size)

    def _start_waiting(self, size: int) -> None:
        assert not self._waiting, "while bytes wait nothing is written, so nothing can drain and ask again"
        self._waiting = True
        self._limits.counters.watch.pauses += 1
        if self._scope is None:
            self._scope = TaskScope(self.crashed)
        self._scope.start(self._wait(size))

    async def _wait(self, size: int) -> None:
        limits, began = self._limits, self.loop.time()
        permit, why = None, WatchOvershoot.PAUSE_OVER
        try:
            permit = await limits.direct.acquire(size, key=self._key, timeout_seconds=limits.max_pause_seconds)
        except PermitAcquireQueueFull:
            why = WatchOvershoot.QUEUE_FULL
        except PermitAcquireAlreadyClosed:
            why = WatchOvershoot.CLOSED
        except PermitAcquireError:
            pass
        finally:
            now = self.loop.time()
            self._waiting = False
            # Pauses without a gap, with a hundred watchers on a connection, would outlast its keep-alive.
            self._next_pause = now + (now - began)
            limits.counters.watch.pause_seconds += now - began
        if permit is not None:
            self._let_pass(permit)
        else:
            self._overshoot(why)

    def _overshoot(self, why: WatchOvershoot) -> None:
        self._limits.overshot(why)
        self._let_pass(None)

    def _let_pass(self, permit: Permit | None) -> None:
        assert self._match is not None
        self._open = self._match.open_bytes
        self._overshot = permit is None
        self._write_rest()
        self._record_passing(permit)
        if permit is not None:
            self._hold_permit(permit)
        self._settle_permit()
        if self._fin_waits:
            self._fin_waits = False
            self.stream_ended()
        if not self.peer.write_pending:
            self.resume_reading()

    def _write_rest(self) -> None:
        rest, self._rest = self._rest, []
        for piece in rest:
            self.peer.write(piece)

    # --- the permit -------------------------------------------------------------------------------

    def _charge(self, size: int) -> None:
        """Take a permit for `size` bytes inside a frame that the client leaves lying, if there is one at once.

        Without a permit the bytes are part of the relay's own budget, as they are in a raw relay.
        """
        limits = self._limits
        if not limits.enabled or limits.direct.closed:
            return
        in_share = limits.in_share(size)
        permit = limits.direct.try_acquire(size, key=self._key) if in_share else None
        if permit is not None:
            self._hold_permit(permit)
            if self._passing is not None:
                self._passing.granted(permit.size)
        elif not self._overshot:
            self._overshot = True
            limits.overshot(WatchOvershoot.INSIDE_FRAME if in_share else WatchOvershoot.SHARE)

    def _hold_permit(self, permit: Permit) -> None:
        self._permit = permit
        self._limits.held_bytes += permit.size
        if self.peer.write_pending:
            self._timer = self.loop.call_later(self._limits.longest_hold_seconds, self._held_too_long)

    def _settle_permit(self) -> None:
        """Release the permit if the client has taken all bytes; end the record if these were the frames' last."""
        if self.peer.write_pending:
            return
        self._release()
        if self._passing is not None and not self._open:
            self._end_passing("ok")

    def _pass_over(self) -> None:
        """Release the permit, and end the record: nothing more of these frames concerns this relay."""
        self._release()
        if self._passing is not None:
            self._end_passing("ok")

    def _held_too_long(self) -> None:
        """Release the permit of bytes that the client never takes.

        The proxy then holds one read of it, which is part of the relay's own budget.
        """
        self._limits.overshot(WatchOvershoot.HELD_TOO_LONG)
        self._release()

    def _release(self) -> None:
        permit, self._permit = self._permit, None
        if permit is not None:
            self._limits.held_bytes -= permit.size
            permit.release()
            if self._passing is not None:
                self._passing.released()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- the event log ----------------------------------------------------------------------------

    def _record_passing(self, permit: Permit | None) -> None:
        """Record that the waiting bytes were written under `permit`; without a permit that ends the record."""
        record, self._arriving = self._arriving, None
        if record is None:
            return
        self._passing_frames = self._frames()
        self._passing = record
        if permit is None:
            self._end_passing("ok")
        else:
            record.granted(permit.size)

    def _record_cut(self) -> None:
        """Record frames that were cut: the client has left, or the broker has left in the middle of a frame."""
        gone = self.peer.cause
        if self._passing is not None and (self._open or self.peer.write_pending):
            self._end_passing("ok" if gone is None and not self._open else "cancelled" if gone else "upstream_error")
        record, self._arriving = self._arriving, None
        if record is not None:
            kind, _ = self._frames()
            record.ended(kind, "cancelled", None, gone)

    def _end_passing(self, outcome: str) -> None:
        record, self._passing = self._passing, None
        if record is not None:
            kind, frame_bytes = self._passing_frames
            record.ended(kind, outcome, frame_bytes if outcome == "ok" else None, self.peer.cause)

    def _frames(self) -> tuple[str, int]:
        assert self._match is not None
        return "watch_init" if self._match.successes else "watch_update", self._match.frame_bytes


class WatchedRelay(Relay):
    """A relay that acquires permits for watch frames, charged to `key`."""

    __slots__ = ("_key", "_watch")

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

    def record_as(self, origin: RequestOrigin) -> None:
        """Record the watch frames of this relay in the event log, as requests of `origin`."""
        assert isinstance(self.broker, WatchedEndpoint)
        self.broker.origin = origin

    def make_broker_endpoint(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Return a broker endpoint that acquires permits for watch frames."""
        return WatchedEndpoint(loop, shared, hangup, self, self._watch, self._key)
