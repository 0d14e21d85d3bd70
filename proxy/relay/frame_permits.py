"""Permits for the frames of topic-list watchers on one relay, whichever engine moves the bytes.

The engine holds the frames back, the permits decide when the frames may pass, and know what of them the client has
still to take. The rules, from docs/adr/0008:
- A permit is for bytes that came, never for bytes that were announced. The permit ends when the client has taken them;
  later bytes of the frame take another permit if the client leaves them lying.
- A frame waits for `LONGEST_PAUSE_SECONDS` at most, then it passes without a permit and is counted.
- When the loop has no time left, frames wait for their turn, by the client's network: no crowd of relays keeps a
  neighbour's frame waiting.
- All permits together take a part of direct memory only: a broker is what its client calls a broker.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from limiter.errors import PermitAcquireAlreadyClosed, PermitAcquireError, PermitAcquireQueueFull
from limiter.permit import Permit
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import TASK_SECONDS, LoopBudget
from proxy.core.tasks import TaskScope
from proxy.relay.engine import RelayOrder
from proxy.relay.watch_limits import PAUSE_SECONDS, PAUSES, FrameMatch, WatchLimits, WatchOvershoot
from proxy.telemetry.events.direct_records import DirectRecord


class FramePermits:
    """The permits of one relay; made for its first watch frame, because most relays never see one.

    `_permit` covers bytes of watch frames that the client has not taken. With an event log `_passing` is the record of
    the frames that pass, `_arriving` that of the frames that wait. `pass_on` has the engine pass the frames that wait,
    `moved` returns the bytes that were read for the client, `crashed` ends the relay.
    """

    __slots__ = (
        "_arriving",
        "_cause",
        "_client_waits",
        "_crashed",
        "_ends_at",
        "_limits",
        "_loop",
        "_match",
        "_moved",
        "_next_pause",
        "_order",
        "_overshot",
        "_pass_on",
        "_passing",
        "_passing_frames",
        "_permit",
        "_scope",
        "_timer",
        "waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: WatchLimits,
        order: RelayOrder,
        pass_on: Callable[[FrameMatch], None],
        moved: Callable[[], int],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._order = order
        self._pass_on = pass_on
        self._moved = moved
        self._crashed = crashed
        # Bytes for the client have not left user space yet: the engine owes DRAINED.
        self._client_waits = False
        # How many bytes the client gets until the end of the frame that is passing; 0 if no part of one is to come.
        self._ends_at = 0
        # Why the client's connection has ended; None while it has not.
        self._cause: DisconnectCause | None = None
        self._permit: Permit | None = None
        # Counted already: these frames passed, at least in part, without a permit.
        self._overshot = False
        self._match: FrameMatch | None = None
        # The frames wait for a permit, or for their turn to ask for it.
        self.waiting = False
        self._next_pause = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._scope: TaskScope | None = None
        # Records of the frames that wait and of those that pass, with an event log.
        self._arriving: DirectRecord | None = None
        self._passing: DirectRecord | None = None
        self._passing_frames = ("", 0)

    @property
    def held_bytes(self) -> int:
        """Return the size of the permit for the frames that pass now."""
        return 0 if self._permit is None else self._permit.size

    def arrived(self, match: FrameMatch) -> None:
        """Take frames that wait; `ask` asks for their permit, once the client has taken the bytes before them."""
        self._match = match
        if self._limits.recorder is not None and self._order.origin is not None:
            self._arriving = DirectRecord(self._limits.recorder, self._order.origin)

    def ask_in_turn(self, turns: LoopBudget) -> None:
        """Ask now if this iteration of the loop has time left, else in the turn of the client's network."""
        if turns.spent():
            self.waiting = True
            turns.defer_client(self._order.network, partial(self._turn, turns))
        else:
            self._ask_and_charge(turns)

    def _turn(self, turns: LoopBudget) -> None:
        # The relay may have ended.
        if self.waiting:
            self.waiting = False
            try:
                self._ask_and_charge(turns)
            except Exception as error:
                self._crashed(error)

    def _ask_and_charge(self, turns: LoopBudget) -> None:
        self.ask()
        if self.waiting:
            turns.charge(TASK_SECONDS)

    def ask(self) -> None:
        """Pass the frames that wait if a permit is granted at once or not needed; else wait for a permit."""
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
            permit = limits.direct.try_acquire(size, key=self._order.key)
            if permit is not None:
                self._let_pass(permit)
            elif self._loop.time() < self._next_pause:
                self._overshoot(WatchOvershoot.PAUSED_BEFORE)
            else:
                self._start_waiting(size)

    def charge(self, size: int) -> None:
        """Take a permit for `size` bytes inside a frame that the client leaves lying, if there is one at once.

        Without a permit the bytes are part of the relay's own budget, as they are in a raw relay.
        """
        limits = self._limits
        self._client_waits = True
        if self._permit is not None or not limits.enabled or limits.direct.closed:
            return
        in_share = limits.in_share(size)
        permit = limits.direct.try_acquire(size, key=self._order.key) if in_share else None
        if permit is not None:
            self._hold(permit)
            if self._passing is not None:
                self._passing.granted(permit.size)
        elif not self._overshot:
            self._overshot = True
            limits.overshot(WatchOvershoot.INSIDE_FRAME if in_share else WatchOvershoot.SHARE)

    def drained(self) -> None:
        """Take note that everything that was held for the client has left."""
        self._client_waits = False
        self._settle()

    def rest_passed(self) -> bool:
        """Return whether no part of a frame is still to come, and settle the frame if so."""
        if self._frame_open():
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        """Release the permit if the client has taken all bytes; end the record if these were the frames' last."""
        if self._client_waits:
            return
        self._release()
        # Without a record nobody asks the engine where the frame stands, each time that the client has taken all.
        if self._passing is not None and not self._frame_open():
            self._end_passing("ok")

    def _frame_open(self) -> bool:
        """Return whether a part of the frames that passed last is still to come."""
        if self._ends_at and self._ends_at <= self._moved():
            self._ends_at = 0
        return self._ends_at > 0

    def ended(self, cause: DisconnectCause | None, *, passed: bool) -> None:
        """End with the relay: cancel the wait, release the permit.

        `cause` is why the client's connection has ended, None if the broker's did; `passed`: the frames that waited
        went out.
        """
        self._cause = cause
        self.waiting = False
        if self._scope is not None:
            self._scope.cancel()
        if passed:
            self._limits.overshot(WatchOvershoot.BROKER_GONE)
            self._end_passing("ok")
            self._record_passing(None)
        self._record_cut()
        self._pass_over()

    # --- waiting ----------------------------------------------------------------------------------

    def _start_waiting(self, size: int) -> None:
        assert not self.waiting, "while frames wait nothing is passed, so nothing can drain and ask again"
        self.waiting = True
        self._limits.counters[PAUSES].value += 1
        if self._scope is None:
            self._scope = TaskScope(self._crashed)
        self._scope.start(self._wait(size))

    async def _wait(self, size: int) -> None:
        limits, began = self._limits, self._loop.time()
        permit, why = None, WatchOvershoot.PAUSE_OVER
        try:
            permit = await limits.direct.acquire(size, key=self._order.key, timeout_seconds=limits.max_pause_seconds)
        except PermitAcquireQueueFull:
            why = WatchOvershoot.QUEUE_FULL
        except PermitAcquireAlreadyClosed:
            why = WatchOvershoot.CLOSED
        except PermitAcquireError:
            pass
        finally:
            now = self._loop.time()
            self.waiting = False
            # Pauses without a gap, with a hundred watchers on a connection, would outlast its keep-alive.
            self._next_pause = now + (now - began)
            limits.counters[PAUSE_SECONDS].value += now - began
        if permit is not None:
            self._let_pass(permit)
        else:
            self._overshoot(why)

    def _overshoot(self, why: WatchOvershoot) -> None:
        self._limits.overshot(why)
        self._let_pass(None)

    def _let_pass(self, permit: Permit | None) -> None:
        assert self._match is not None
        self._overshot = permit is None
        self._client_waits = True
        if self._match.open_bytes:
            # The direction stands still: all bytes that were read are counted.
            self._ends_at = self._moved() + self._match.open_bytes
        self._pass_on(self._match)
        self._record_passing(permit)
        if permit is not None:
            self._hold(permit)
        self._settle()

    # --- the permit -------------------------------------------------------------------------------

    def _hold(self, permit: Permit) -> None:
        self._permit = permit
        self._limits.held_bytes += permit.size
        if self._client_waits:
            self._timer = self._loop.call_later(self._limits.longest_hold_seconds, self._held_too_long)

    def _pass_over(self) -> None:
        """Release the permit, and end the record: nothing more of these frames concerns this relay."""
        self._release()
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
        """Record that the waiting bytes were passed under `permit`; without a permit that ends the record."""
        self._passing, self._arriving = self._arriving, None
        self._passing_frames = self._frames()
        if permit is None:
            self._end_passing("ok")
        elif self._passing is not None:
            self._passing.granted(permit.size)

    def _record_cut(self) -> None:
        """Record frames that were cut: the client has left, or the broker has left in the middle of a frame."""
        gone, is_open = self._cause, self._frame_open()
        if is_open or self._client_waits:
            self._end_passing("ok" if gone is None and not is_open else "cancelled" if gone else "upstream_error")
        record, self._arriving = self._arriving, None
        if record is not None:
            record.ended(self._frames()[0], "cancelled", None, gone)

    def _end_passing(self, outcome: str) -> None:
        record, self._passing = self._passing, None
        if record is not None:
            kind, frame_bytes = self._passing_frames
            record.ended(kind, outcome, frame_bytes if outcome == "ok" else None, self._cause)

    def _frames(self) -> tuple[str, int]:
        """Return the kind and the bytes of the frames that came last; none may have come."""
        if self._match is None:
            return "", 0
        return "watch_init" if self._match.successes else "watch_update", self._match.frame_bytes
