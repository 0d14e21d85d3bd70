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

from collections.abc import Hashable

from limiter.claim import Claim
from limiter.clock import Clock
from limiter.errors import PermitAcquireAlreadyClosed, PermitAcquireCancelled
from limiter.ledger import MUST_WAIT
from limiter.observer import LimiterObserver
from limiter.permit import Permit, misuse_of
from limiter.queue import Growth, Newcomer, Waiter, WaiterQueue
from limiter.shares import Shares
from limiter.waiting import Waiting

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore(Waiting):
    """Give permits of any size out of `limit`; `limit <= 0` gives all that is asked for, and keeps the books.

    `max_queue` bounds the newcomers that wait (`<= 0`: no bound); growers are not counted, they are bounded
    by the permits held. `timeout_seconds` is for requests that bring none of their own: 0 means now or not at
    all. `share_by_key` and `key_cap_percent`: see `set_sharing`. Not for use from several threads. Source:
    PIP-442, AsyncSemaphore.
    """

    __slots__ = ()

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
        super().__init__(name, limit, max_queue, timeout_seconds, clock, observer)
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
        if permit.growth is not None:
            self._end_growth(permit.growth)
        self._ledger.resize(permit, 0)
        if self._shares is not None:
            self._shares.freed(permit.key)
        self._tally.note_released()
        self._serve()

    def recharge(self, charged: Newcomer | Permit, key: Hashable) -> None:
        """Charge another key for one that waits or a permit; nothing for what has ended. See `Claim.recharge`."""
        if isinstance(charged, Newcomer):
            if charged.queue is not None:
                self._move(charged, key)
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
