"""Own the weighted asynchronous semaphore of PIP-442: who waits, and who is served next.

Rules:
- Newcomers are served first in, first out; a head that does not fit holds up those behind it, or large
  requests would starve. Whoever leaves (served, expired, cancelled), from whatever place, lets the next be
  looked at.
- Book before waking: the one that frees permits books them to the waiter, so nobody can slip in before it
  runs.
- Growth of a held permit goes before newcomers: it is the only way to get its memory back. One permit at a
  time may overshoot the limit, so that permits that all grow cannot wait for each other (docs/adr/0003).
- An acquire larger than the whole limit waits until nothing is held and passes alone, clamped to the limit.

All of it is decided in `_serve` over the `Ledger`, without await or I/O. The module knows no Pulsar, no
connection and no metrics library; units are the caller's (bytes, in the proxy).
"""

import asyncio
import heapq
import sys
from collections.abc import Hashable
from operator import itemgetter

from limiter.clock import Clock
from limiter.deadlines import Deadlines
from limiter.errors import (
    PermitAcquireAlreadyClosed,
    PermitAcquireCancelled,
    PermitAcquireError,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
)
from limiter.ledger import MUST_WAIT, Ledger
from limiter.observer import LimiterObserver, LimiterStatistics, Tally
from limiter.permit import Permit, misuse_of
from limiter.queue import Growth, Newcomer, Waiter, WaiterQueue

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore:
    """Give permits of any size out of `limit`; `limit <= 0` gives all that is asked for, and keeps the books.

    `max_queue` bounds the newcomers that wait (`<= 0`: no bound); growers are not counted, they are bounded
    by the permits held. `timeout_seconds` is for requests that bring none of their own: 0 means now or not at
    all. Not for use from several threads. Source: PIP-442, AsyncSemaphore.
    """

    __slots__ = (
        "_clock",
        "_closed",
        "_deadlines",
        "_growers",
        "_ledger",
        "_newcomers",
        "_tally",
        "max_queue",
        "name",
        "timeout_seconds",
    )

    def __init__(
        self,
        name: str,
        limit: int,
        *,
        max_queue: int,
        timeout_seconds: float,
        clock: Clock,
        observer: LimiterObserver | None = None,
    ) -> None:
        self.name = name
        self.max_queue = max_queue
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._closed = False
        self._ledger = Ledger(limit)
        self._tally = Tally(observer)
        self._newcomers: WaiterQueue[Newcomer] = WaiterQueue(self._leave)
        self._growers: WaiterQueue[Growth] = WaiterQueue(self._leave)
        self._deadlines = Deadlines(clock, self._expire)

    # What a caller asks for

    def try_acquire(self, n: int, *, key: Hashable = None) -> Permit | None:
        """Return a permit of `n` if nobody waits and it fits, else None; `n == 0` always succeeds.

        Raises ValueError for `n < 0`, PermitAcquireAlreadyClosed after `close`.
        """
        if n < 0:
            raise ValueError(f"{self.name} limiter: expected permits >= 0, got {n}")
        if self._closed:
            raise self._refusal(PermitAcquireAlreadyClosed, n)
        if n and self._newcomers.head is not None:
            return None
        size = self._ledger.room_for(n)
        if size == MUST_WAIT:
            return None
        return self._book(n, size, key, 0.0)

    async def acquire(self, n: int, *, key: Hashable = None, timeout_seconds: float | None = None) -> Permit:
        """Return a permit of `n`, waiting in line for `timeout_seconds` (default: the semaphore's).

        The caller owes its release. `key` names who is charged, see `top_holders`. Raises ValueError for `n <
        0`, PermitAcquireTimeout, PermitAcquireQueueFull, PermitAcquireAlreadyClosed. Who is cancelled holds
        nothing.
        """
        permit = self.try_acquire(n, key=key)
        if permit is not None:
            return permit
        waiter = self._queue_newcomer(n, key, timeout_seconds)
        try:
            outcome = await waiter
        except BaseException:
            # Not only CancelledError: a coroutine that is dropped gets GeneratorExit here.
            self._abandon(waiter)
            raise
        if isinstance(outcome, Permit):
            return outcome
        try:
            raise outcome
        finally:
            del outcome, waiter  # the traceback holds this frame: without this the error would be a cycle

    def try_update(self, permit: Permit, n: int) -> bool:
        """Change `permit` to `n` if it may be done now: a shrink always, growth if none waits and it may go.

        The permit that overshoots already may grow on past those who wait: they may be waiting for its end.
        Raises ValueError for `n < 0`, ForeignPermit for a permit of another semaphore or a released one,
        PermitBusy while an update of it waits, PermitAcquireAlreadyClosed for growth after `close`.
        """
        if n < 0:
            raise ValueError(f"{self.name} limiter: expected permits >= 0, got {n}")
        if permit.owner is not self or permit.released or permit.growth is not None:
            raise misuse_of(permit, self)
        if n > permit.size:
            if self._closed:
                raise self._refusal(PermitAcquireAlreadyClosed, n)
            if not self._ledger.may_grow(permit, n):
                return False
            self._grow(permit, n, 0.0)
        elif n < permit.size:
            self._shrink(permit, n)
        permit.requested = n
        return True

    async def update(self, permit: Permit, n: int, *, timeout_seconds: float | None = None) -> Permit:
        """Change `permit` to `n` in place and return it; growth may wait.

        Meanwhile, and after any failure, the old size is held as before. Raises what `try_update` raises,
        PermitAcquireTimeout, and PermitAcquireCancelled if the permit is released during the wait. Source:
        PIP-442; docs/adr/0003.
        """
        if self.try_update(permit, n):
            return permit
        waiter = self._queue_growth(permit, n, timeout_seconds)
        try:
            outcome = await waiter
        except BaseException:
            self._abandon(waiter)
            raise
        if isinstance(outcome, Permit):
            permit.growth = None
            if permit.released:  # between the grant and now
                raise self._refusal(PermitAcquireCancelled, n)
            permit.requested = n
            return permit
        try:
            raise outcome
        finally:
            del outcome, waiter

    def release(self, permit: Permit) -> None:
        """Give back all that `permit` holds and end an update of it; a second call does nothing.

        Works after `close`. Raises ForeignPermit for a permit of another semaphore.
        """
        if permit.owner is not self:
            raise misuse_of(permit, self)
        if permit.released:
            return
        permit.released = True
        if permit.growth is not None:
            self._end_growth(permit.growth)
        self._ledger.resize(permit, 0)
        self._tally.note_released()
        self._serve()

    # What an operator changes

    def set_limit(self, limit: int) -> None:
        """Change the limit live.

        Raised: those who fit now are served at once. Lowered below what is held: nothing is taken back;
        newcomers wait until enough was released, and growth goes on, one overshoot at a time.
        """
        self._ledger.set_limit(limit)
        self._serve()

    def set_max_queue(self, max_queue: int) -> None:
        """Change the bound of the queue live; those who wait already stay, also when they are more."""
        self.max_queue = max_queue

    def set_timeout(self, timeout_seconds: float) -> None:
        """Change the default timeout for requests from now on; those who wait keep their deadlines."""
        self.timeout_seconds = timeout_seconds

    def close(self) -> None:
        """Refuse everything from now on and fail all who wait with PermitAcquireAlreadyClosed.

        Permits that are held stay valid: they may shrink and must be released. A second call does nothing.
        """
        self._closed = True
        for queue in (self._growers, self._newcomers):
            while (waiter := queue.head) is not None:
                self._unlink(waiter)
                self._refuse(waiter, PermitAcquireAlreadyClosed)
        self._deadlines.close()

    # What anybody may look at

    @property
    def limit(self) -> int:
        """Return the limit; 0 or less is unlimited."""
        return self._ledger.limit

    @property
    def held(self) -> int:
        """Return the sum of all permits' sizes, in unlimited mode too."""
        return self._ledger.held

    @property
    def available(self) -> int:
        """Return what is free, never below 0; `sys.maxsize` if unlimited."""
        limit = self._ledger.limit
        return max(0, limit - self._ledger.held) if limit > 0 else sys.maxsize

    @property
    def queue_size(self) -> int:
        """Return how many newcomers wait: what `max_queue` bounds."""
        return len(self._newcomers)

    @property
    def growers_waiting(self) -> int:
        """Return how many held permits wait to grow."""
        return len(self._growers)

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    def statistics(self) -> LimiterStatistics:
        """Return all numbers of this moment."""
        ledger, tally = self._ledger, self._tally
        return LimiterStatistics(
            name=self.name,
            limit=ledger.limit,
            held=ledger.held,
            peak_held=ledger.peak_held,
            queue_size=len(self._newcomers),
            growers_waiting=len(self._growers),
            max_queue=self.max_queue,
            queued=tally.queued,
            granted=tally.granted,
            timed_out=tally.timed_out,
            rejected=tally.rejected,
            cancelled=tally.cancelled,
            overshoots=ledger.overshoots,
            observer_errors=tally.observer_errors,
        )

    def top_holders(self, count: int) -> list[tuple[Hashable, int]]:
        """Return up to `count` keys with what they hold, most first; permits without a key are not in it."""
        return heapq.nlargest(count, self._ledger.holders.items(), key=itemgetter(1))

    def __repr__(self) -> str:
        limit = str(self.limit) if self.limit > 0 else "unlimited"
        closed = " closed" if self._closed else ""
        waiting = f"queued {len(self._newcomers)}, growing {len(self._growers)}"
        return f"<AsyncSemaphore {self.name}{closed}: held {self.held} of {limit}, {waiting}>"

    # Serving

    def _serve(self) -> None:
        """Serve all who may go now, growers first.

        A grower waits only while another permit overshoots, so above the limit: nothing else fits then, neither
        a later growth nor a newcomer, and the calls that do not wait need not look at the growers.
        """
        growers, newcomers, ledger = self._growers, self._newcomers, self._ledger
        while (growth := growers.head) is not None:
            if not ledger.may_grow(growth.permit, growth.size):
                return
            self._unlink(growth)
            # It stays the permit's `growth` until its task takes the grant: a cancel would undo it.
            self._grow(growth.permit, growth.size, self._clock.time() - growth.queued_at)
            growth.set_result(growth.permit)
        while (newcomer := newcomers.head) is not None:
            size = ledger.room_for(newcomer.size)
            if size == MUST_WAIT:
                return
            self._unlink(newcomer)
            waited = self._clock.time() - newcomer.queued_at
            newcomer.set_result(self._book(newcomer.size, size, newcomer.key, waited))

    def _book(self, requested: int, size: int, key: Hashable, wait_seconds: float) -> Permit:
        permit = Permit(self, requested, key)
        self._ledger.resize(permit, size)
        self._tally.count_granted(wait_seconds)
        return permit

    def _grow(self, permit: Permit, n: int, wait_seconds: float) -> None:
        self._ledger.resize(permit, n)
        self._tally.count_granted(wait_seconds)
        self._tally.note_updated()

    def _shrink(self, permit: Permit, n: int) -> None:
        self._ledger.resize(permit, n)
        self._tally.note_updated()
        self._serve()

    # Waiting and leaving

    def _queue_newcomer(self, n: int, key: Hashable, timeout_seconds: float | None) -> Newcomer:
        now, deadline = self._patience(n, timeout_seconds)
        if len(self._newcomers) >= self.max_queue > 0:
            self._tally.count_rejected()
            raise self._refusal(PermitAcquireQueueFull, n)
        waiter = Newcomer(asyncio.get_running_loop(), n, now, deadline, key)
        self._newcomers.push(waiter)
        self._deadlines.watch(waiter)
        self._tally.count_queued()
        return waiter

    def _queue_growth(self, permit: Permit, n: int, timeout_seconds: float | None) -> Growth:
        now, deadline = self._patience(n, timeout_seconds)
        waiter = permit.growth = Growth(asyncio.get_running_loop(), n, now, deadline, permit)
        self._growers.push(waiter)
        self._deadlines.watch(waiter)
        self._tally.count_queued()
        return waiter

    def _patience(self, n: int, timeout_seconds: float | None) -> tuple[float, float]:
        """Return now and the deadline; raise PermitAcquireTimeout for who cannot wait at all."""
        timeout = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        if timeout <= 0:
            self._tally.count_timed_out(0.0)
            raise self._refusal(PermitAcquireTimeout, n)
        now = self._clock.time()
        return now, now + timeout

    def _unlink(self, waiter: Waiter) -> None:
        assert waiter.queue is not None, "waiter has left already"
        waiter.queue.remove(waiter)
        self._deadlines.forget(waiter)

    def _refuse(self, waiter: Waiter, kind: type[PermitAcquireError]) -> None:
        if isinstance(waiter, Growth):
            waiter.permit.growth = None
        waiter.set_result(self._refusal(kind, waiter.size))

    def _expire(self, waiter: Waiter, now: float) -> None:
        """End a wait whose deadline has passed; `Deadlines` has dropped the waiter before it calls this."""
        assert waiter.queue is not None, "waiter has left already"
        waiter.queue.remove(waiter)
        self._refuse(waiter, PermitAcquireTimeout)
        self._tally.count_timed_out(now - waiter.queued_at)
        self._serve()

    def _leave(self, waiter: Waiter) -> None:
        """Free the place of a waiter in the moment of its cancel, and serve those it held up."""
        self._unlink(waiter)
        if isinstance(waiter, Growth):
            waiter.permit.growth = None
        self._tally.count_cancelled()
        self._serve()

    def _end_growth(self, growth: Growth) -> None:
        """End the growth of a permit that is being released, unless it was granted already."""
        if growth.queue is not None:
            self._unlink(growth)
            self._tally.count_cancelled()
            self._refuse(growth, PermitAcquireCancelled)

    def _abandon(self, waiter: Waiter) -> None:
        """Undo whatever a waiter got whose task will not take it; nothing if it got nothing."""
        if waiter.cancel() or waiter.cancelled():
            return
        permit = waiter.result()
        if not isinstance(permit, Permit):
            return
        self._tally.count_cancelled()
        if not isinstance(waiter, Growth):
            self.release(permit)
            return
        permit.growth = None
        if not permit.released:
            self._shrink(permit, waiter.previous_size)

    def _refusal(self, kind: type[PermitAcquireError], asked: int) -> PermitAcquireError:
        return kind(self.name, self._ledger.limit, self._ledger.held, asked, len(self._newcomers))
