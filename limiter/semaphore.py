"""Own the weighted asynchronous semaphore of PIP-442: who waits, and who is served next.

Rules:
- Newcomers are served first in, first out, or in turns by key (`limiter.shares`); a head that does not fit
  holds up those behind it, or large requests would starve. Whoever leaves (served, expired, cancelled), from
  whatever place, lets the next be looked at.
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
from collections.abc import Hashable, Iterator
from operator import itemgetter

from limiter.claim import Claim
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
from limiter.observer import LimiterObserver, Tally
from limiter.permit import Growth, Newcomer, Permit, Waiter, misuse_of
from limiter.queue import WaiterQueue
from limiter.shares import Shares
from limiter.statistics import LimiterStatistics, WaiterReading, statistics_of, waiter_references, waiters_readings

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore:
    """Give permits of any size out of `limit`; `limit <= 0` gives all that is asked for, and keeps the books.

    `max_queue` bounds the newcomers that wait (`<= 0`: no bound); growers are not counted, they are bounded
    by the permits held. `timeout_seconds` is for requests that bring none of their own: 0 means now or not at
    all. `share_by_key` and `key_cap_percent`: see `set_sharing`. Not for use from several threads. Source:
    PIP-442, AsyncSemaphore.
    """

    __slots__ = (
        "_clock",
        "_closed",
        "_deadlines",
        "_growers",
        "_ledger",
        "_newcomers",
        "_shares",
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
        share_by_key: bool = False,
        key_cap_percent: int = 100,
    ) -> None:
        self.name = name
        self.max_queue = max_queue
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._closed = False
        self._ledger = Ledger(limit)
        self._tally = Tally(observer)
        self._shares: Shares | None = None  # the newcomers, if they share
        self._newcomers: WaiterQueue[Newcomer] | Shares = WaiterQueue(self._leave)
        self._growers: WaiterQueue[Growth] = WaiterQueue(self._leave)
        self._deadlines = Deadlines(clock, self._expire)
        self.set_sharing(share_by_key, key_cap_percent)

    # What a caller asks for

    def try_acquire(self, n: int, *, key: Hashable = None, claim: Claim | None = None) -> Permit | None:
        """Return a permit of `n` if nobody who waits goes before it and it fits, else None; 0 always succeeds.

        Raises ValueError for `n < 0` and for a claim in use, PermitAcquireAlreadyClosed after `close`.
        """
        if n < 0:
            raise ValueError(f"{self.name} limiter: expected permits >= 0, got {n}")
        if self._closed:
            raise self._refusal(PermitAcquireAlreadyClosed, n)
        if claim is not None:
            key = claim.begin()
        if n:
            if self._shares is not None:
                if not self._shares.admits(key, n):
                    return None
            elif self._newcomers.head is not None:
                return None
        size = self._ledger.room_for(n)
        if size == MUST_WAIT:
            return None
        if size and self._shares is not None:
            self._shares.pay_at_once(key, size)
        permit = self._book(n, size, key, 0.0)
        if claim is not None:
            claim.attach(self, permit)
        return permit

    async def acquire(
        self, n: int, *, key: Hashable = None, timeout_seconds: float | None = None, claim: Claim | None = None
    ) -> Permit:
        """Return a permit of `n`, waiting in line for `timeout_seconds` (default: the semaphore's).

        The caller owes its release. `key` names who is charged, see `top_holders` and `set_sharing`; a `claim`
        brings its own, which may change. Raises ValueError for `n < 0` and for a claim in use,
        PermitAcquireTimeout, PermitAcquireQueueFull, PermitAcquireAlreadyClosed. Who is cancelled holds nothing.
        """
        permit = self.try_acquire(n, key=key, claim=claim)
        if permit is not None:
            return permit
        waiter = self._queue_newcomer(n, key if claim is None else claim.key, timeout_seconds)
        if claim is not None:
            waiter.about = claim.about
            claim.attach(self, waiter)
        try:
            outcome = await waiter
        except BaseException:
            # Not only CancelledError: a coroutine that is dropped gets GeneratorExit here.
            self._abandon(waiter)
            raise
        if claim is not None:
            claim.attach(self, outcome)
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
            if self._shares is not None:
                self._serve()  # a key in debt, or at its cap now, gives way to others
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
        if permit.growth is not None and permit.growth.queue is not None:
            self._unlink(permit.growth)
            self._tally.count_cancelled()
            self._refuse(permit.growth, PermitAcquireCancelled)
        self._ledger.resize(permit, 0)
        if self._shares is not None:
            self._shares.freed(permit.key)
        self._tally.note_released()
        self._serve()

    def recharge(self, charged: Newcomer | Permit, key: Hashable) -> None:
        """Charge another key for one that waits or a permit; nothing for what has ended. See `Claim.recharge`."""
        if isinstance(charged, Newcomer):
            if charged.queue is not None:
                if self._shares is None:
                    charged.key = key
                else:
                    self._shares.move(charged, key)
                    self._serve()
                return
            permit = charged.permit()
        else:
            permit = charged
        if permit is None or permit.released:
            return
        old = permit.key
        self._ledger.recharge(permit, key)
        if self._shares is not None:
            self._shares.charge(old, -permit.size)
            self._shares.charge(key, permit.size)
            self._shares.freed(old)
            self._serve()

    def prolong(self, waiter: Newcomer) -> None:
        """Let one that waits go on for the semaphore's timeout from now: somebody else has joined it in its place."""
        waiter.patient_until = max(waiter.patient_until, self._clock.time() + self.timeout_seconds)

    # What an operator changes

    def set_limit(self, limit: int) -> None:
        """Change the limit live.

        Raised: those who fit now are served at once. Lowered below what is held: nothing is taken back;
        newcomers wait until enough was released, and growth goes on, one overshoot at a time.
        """
        self._ledger.set_limit(limit)
        if self._shares is not None:
            self._shares.limit_changed()
        self._serve()

    def set_sharing(self, share_by_key: bool, key_cap_percent: int) -> None:
        """Let newcomers of different keys go in turns, by bytes, or all in one line; live.

        With turns a key is let in only up to `key_cap_percent` of the limit (100: no cap; None is a key like any
        other). Those who wait stay, in the order in which they came; debts end when sharing does. Raises
        ValueError for a cap outside 1 to 100. Source: docs/adr/0007.
        """
        if not 1 <= key_cap_percent <= 100:
            raise ValueError(f"{self.name} limiter: expected a cap of 1 to 100 percent, got {key_cap_percent}")
        if share_by_key and self._shares is not None:
            self._shares.set_cap(key_cap_percent)
        elif share_by_key is not (self._shares is not None):
            waiters = self._newcomers.drain()
            self._shares = Shares(self._ledger, key_cap_percent, self._leave) if share_by_key else None
            self._newcomers = WaiterQueue(self._leave) if self._shares is None else self._shares
            for waiter in waiters:
                self._newcomers.push(waiter)
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
        waiters: list[Waiter] = [*self._growers.drain(), *self._newcomers.drain()]
        for waiter in waiters:
            self._refuse(waiter, PermitAcquireAlreadyClosed)
        self._deadlines.close()

    # Serving

    def _serve(self) -> None:
        """Serve all who may go now, growers first.

        A grower waits only while another permit overshoots, so above the limit: nothing else fits then, neither
        a later growth nor a newcomer, and the calls that do not wait need not look at the growers.
        """
        growers, newcomers, ledger = self._growers, self._newcomers, self._ledger
        if self._shares is not None:
            self._serve_in_turns(self._shares)
            return
        while (growth := growers.head) is not None:
            if not ledger.may_grow(growth.permit, growth.size):
                return
            self._grant_growth(growth)
        while (newcomer := newcomers.head) is not None:
            size = ledger.room_for(newcomer.size)
            if size == MUST_WAIT:
                return
            self._unlink(newcomer)
            waited = self._clock.time() - newcomer.queued_at
            newcomer.set_result(self._book(newcomer.size, size, newcomer.key, waited))

    def _serve_in_turns(self, shares: Shares) -> None:
        """Serve as `_serve` does, but by shares: growth of a key in debt lets the next newcomer that fits go first.

        That delays no growth but by the room taken: the first grower goes in the same call, as an overshoot if it
        must. Each step serves somebody or is the last.
        """
        ledger = self._ledger
        while True:
            growth, newcomer = self._growers.head, shares.head
            if newcomer is not None and (growth is None or shares.behind(growth.permit.key)):
                size = ledger.room_for(newcomer.size)
                if size != MUST_WAIT:
                    shares.take(newcomer, size)
                    self._deadlines.forget(newcomer)
                    waited = self._clock.time() - newcomer.queued_at
                    newcomer.set_result(self._book(newcomer.size, size, newcomer.key, waited))
                    continue
            if growth is None or not ledger.may_grow(growth.permit, growth.size):
                return
            self._grant_growth(growth)

    def _grant_growth(self, growth: Growth) -> None:
        self._unlink(growth)
        # It stays the permit's `growth` until its task takes the grant: a cancel would undo it.
        self._grow(growth.permit, growth.size, self._clock.time() - growth.queued_at)
        growth.set_result(growth.permit)

    def _book(self, requested: int, size: int, key: Hashable, wait_seconds: float) -> Permit:
        permit = Permit(self, requested, key)
        self._ledger.resize(permit, size)
        self._tally.count_granted(wait_seconds)
        return permit

    def _grow(self, permit: Permit, n: int, wait_seconds: float) -> None:
        grown = n - permit.size
        self._ledger.resize(permit, n)
        if self._shares is not None:
            self._shares.charge(permit.key, grown)
        self._tally.count_granted(wait_seconds)
        self._tally.note_updated()

    def _shrink(self, permit: Permit, n: int) -> None:
        self._ledger.resize(permit, n)
        if self._shares is not None:
            self._shares.freed(permit.key)
        self._tally.note_updated()
        self._serve()

    def _abandon(self, waiter: Waiter) -> None:
        """Undo whatever a waiter got whose task will not take it; nothing if it got nothing."""
        if waiter.cancel() or waiter.cancelled():
            return
        permit = waiter.result()
        if not isinstance(permit, Permit):
            return
        self._tally.count_cancelled()
        unused = permit.size
        if isinstance(waiter, Growth):
            permit.growth = None
            unused -= waiter.previous_size
        if permit.released:
            return
        if self._shares is not None:
            self._shares.charge(permit.key, -unused)
        if isinstance(waiter, Growth):
            self._shrink(permit, waiter.previous_size)
        else:
            self.release(permit)

    # Waiting

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
        if isinstance(waiter, Newcomer) and waiter.patient_until > now:
            waiter.deadline = waiter.patient_until
            self._deadlines.watch(waiter)
            return
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

    def _refusal(self, kind: type[PermitAcquireError], asked: int) -> PermitAcquireError:
        return kind(self.name, self._ledger.limit, self._ledger.held, asked, len(self._newcomers))

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
    def caps_keys(self) -> bool:
        """Tell whether a newcomer may have to wait for its own key while there is room for it."""
        return self._shares is not None and self._shares.caps_keys

    @property
    def queue_size(self) -> int:
        """Return how many newcomers wait: what `max_queue` bounds."""
        return len(self._newcomers)

    @property
    def growers_waiting(self) -> int:
        """Return how many held permits wait to grow."""
        return len(self._growers)

    @property
    def short(self) -> bool:
        """Return whether anybody waits for room: those whose key is at its cap wait for their own permits only."""
        if len(self._growers):
            return True
        shares = self._shares
        return len(self._newcomers) > 0 if shares is None else shares.keys_waiting > shares.keys_capped

    def at_cap(self, key: Hashable, n: int) -> bool:
        """Return whether a newcomer of `key` would have to wait for permits of its own key, however much is free."""
        return self._shares is not None and self._shares.at_cap(key, n)

    @property
    def share_by_key(self) -> bool:
        """Return whether newcomers are served in turns by key, and not in one line."""
        return self._shares is not None

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    def statistics(self) -> LimiterStatistics:
        """Return all numbers of this moment."""
        waiting, growing = len(self._newcomers), len(self._growers)
        return statistics_of(self.name, self._ledger, self._tally, self._shares, waiting, growing, self.max_queue)

    def top_holders(self, count: int) -> list[tuple[Hashable, int]]:
        """Return up to `count` keys with what they hold, most first; permits without a key are not in it."""
        return heapq.nlargest(count, self._ledger.holders.items(), key=itemgetter(1))

    def waiters(self, count: int, at_once: int) -> Iterator[list[WaiterReading]]:
        """Yield up to `count` of those who wait, `at_once` at a time: growers first, then newcomers as they are served.

        With sharing by key that order is the keys' turns, see `Shares.__iter__`. Between two steps anybody may come, go
        or change keys: who waits is found in the first step (0.2 us each, no more than `count` are looked at), who has
        left since is passed over, and nobody is kept alive: an asker holds 80 bytes for each of them.
        """
        found = waiter_references(self._growers, self._newcomers, count)
        for start in range(0, len(found), at_once):
            yield waiters_readings(found[start : start + at_once], self._clock.time())

    def __repr__(self) -> str:
        limit = str(self.limit) if self.limit > 0 else "unlimited"
        closed = " closed" if self._closed else ""
        waiting = f"queued {len(self._newcomers)}, growing {len(self._growers)}"
        return f"<AsyncSemaphore {self.name}{closed}: held {self.held} of {limit}, {waiting}>"
