"""The weighted asynchronous semaphore of PIP-442: which request waits, and which request is served next.

Rules:
- Acquires are served first in, first out, or in turns by key (`limiter.acquires`). A head that does not fit holds up
  the waiters after it, or large requests would starve. Whenever a waiter leaves, the next waiter is looked at.
- Book before waking: the call that frees permits books them for the waiters, so that no other call can take them. One
  call serves `MOST_AT_ONCE`, and the loop's next step those that are left; nobody passes them meanwhile.
- Growth of a held permit goes before acquires: only growth lets the holder finish and release. A single
  permit may overshoot the limit, so that permits which all grow cannot wait for each other (docs/adr/0003).
- An acquire larger than the whole limit waits until nothing is held and passes alone, clamped to the limit.

Rules of a share, a part of a semaphore with a line of its own (a permit that counts at several nodes is one of each):
- Who needs a share and the whole takes the share first, and holds it while waiting for the whole. So who waits at one
  node also holds those it has passed: if others took of them meanwhile, it would wait for ever (`tests/model`).
- Who waits for a share that is full stops nobody who does not need it.
- The permit of a share may end before that of the whole; to end it waits for nothing.

`_serve` decides all of this over the `Ledger`, without await or I/O. Units are the caller's (bytes, in the proxy).
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterator
from itertools import chain, islice
from math import ceil
from operator import itemgetter
from weakref import ref

from limiter.acquires import AcquireLine
from limiter.clock import Clock
from limiter.deadlines import Deadlines
from limiter.errors import (
    PermitAcquireAlreadyClosed,
    PermitAcquireCancelled,
    PermitAcquireError,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
)
from limiter.fair_line import FairLine
from limiter.ledger import MUST_WAIT, Ledger
from limiter.observer import EventCounter, WaitObserver, waits_of
from limiter.permit import AcquireWaiter, GrowWaiter, Permit, Waiter, misuse_of
from limiter.sites import SiteKey
from limiter.statistics import LimiterStatistics, WaiterStatistics

__all__ = ["MOST_AT_ONCE", "AsyncSemaphore"]

# A grant takes some microseconds: so many are a fraction of a millisecond.
MOST_AT_ONCE = 64


class AsyncSemaphore:
    """A semaphore with permits of any size out of `limit`; `limit <= 0` grants every request and still counts.

    `max_queue` bounds the acquires that wait (`<= 0`: no bound); growth is bounded by the permits held instead.
    `timeout_seconds` is the default for requests without a timeout; 0 means now or not at all. Both may be assigned at
    any time: waiters stay and keep their deadlines. `share_by_key`: see `set_sharing`; in turns, one of `kept_of` parts
    of the limit is kept for keys that hold nothing. Not thread-safe. Source: PIP-442.
    """

    __slots__ = (
        "_acquirers", "_clock", "_counter", "_deadlines", "_goes_on", "_growers", "_ledger", "_waiting", "_whole",
        "closed", "max_queue", "name", "part", "timeout_seconds",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        limit: int,
        *,
        max_queue: int,
        timeout_seconds: float,
        clock: Clock,
        observer: WaitObserver | None = None,
        share_by_key: bool = False,
        kept_of: int = 0,
    ) -> None:
        self.name = name
        self.max_queue = max_queue
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self.closed = False
        self._ledger = Ledger(limit, kept_of)
        self._counter = EventCounter(observer)
        self._acquirers = AcquireLine(self._ledger, share_by_key)
        self._growers: FairLine[GrowWaiter] = FairLine()
        self._deadlines = Deadlines(clock, self._expire)
        self._waiting = 0  # acquires and growth
        self._goes_on = False
        # Of a share. A share is no class of its own: with two classes in one code CPython's caches of attributes miss,
        # which is a tenth of the time of a list's permits.
        self._whole: AsyncSemaphore | None = None
        self.part = 0.0

    # Requests

    def try_acquire(self, n: int, *, key: Hashable = None) -> Permit | None:
        """Return a permit of `n` if it fits and no waiter goes before it, else None; 0 always succeeds.

        Raises ValueError for `n < 0`, TypeError for an unhashable key, PermitAcquireAlreadyClosed.
        """
        if n < 0:
            raise ValueError(f"{self.name} limiter: expected permits >= 0, got {n}")
        if self.closed:
            raise self._error(PermitAcquireAlreadyClosed, n)
        hash(key)  # raised later, the TypeError would leave a half-made booking
        size = self._ledger.room_for(n)
        if size == MUST_WAIT or (n and (self._growth_goes_on() or not self._acquirers.passes(key, n, size))):
            return None
        permit = self._book(n, size, key, 0.0)
        self._look_at_site(key)
        return permit

    async def acquire(
        self, n: int, *, key: Hashable = None, about: Hashable = None, timeout_seconds: float | None = None
    ) -> Permit:
        """Return a permit of `n`, waiting up to `timeout_seconds` (default: the semaphore's); the caller releases it.

        `key` names the client that is charged, see `top_holders` and `set_sharing`; `about` names the purpose for a
        reader of the queue (`waiters`) and decides nothing. Raises what `try_acquire` raises, PermitAcquireTimeout and
        PermitAcquireQueueFull. A cancelled acquire holds nothing.
        """
        permit = self.try_acquire(n, key=key)
        if permit is not None:
            return permit
        waiter = self._enqueue_acquire(n, key, timeout_seconds)
        waiter.about = about
        try:
            outcome = await waiter
        except BaseException:
            # Not only CancelledError: a coroutine that is dropped raises GeneratorExit here.
            self._abandon(waiter)
            raise
        if isinstance(outcome, Permit):
            return outcome
        try:
            raise outcome
        finally:
            del outcome, waiter  # the traceback holds this frame: without this the error would be a cycle

    def try_update(self, permit: Permit, n: int) -> bool:
        """Change `permit` to `n` if that needs no wait: a shrink never does, growth only if the ledger allows it.

        The permit that overshoots may grow past growth that waits: that growth may be waiting for this permit's end.
        Raises ValueError for `n < 0`, ForeignPermit for a permit of another semaphore or a released permit,
        PermitBusy while an update of the permit waits, PermitAcquireAlreadyClosed for growth after `close`.
        """
        if n < 0:
            raise ValueError(f"{self.name} limiter: expected permits >= 0, got {n}")
        if permit.owner is not self or permit.released or permit.grow_waiter is not None:
            raise misuse_of(permit, self)
        if n > permit.size:
            if self.closed:
                raise self._error(PermitAcquireAlreadyClosed, n)
            if not self._ledger.may_grow(permit, n):
                return False
            if self._growth_goes_on() and permit is not self._ledger.overshooter:
                return False
            self._grow(permit, n, 0.0)
            if self._waiting:
                self._serve()  # a key in deficit, or at its cap now, gives way to others
        elif n < permit.size:
            self._shrink(permit, n)
        permit.requested = n
        return True

    async def update(self, permit: Permit, n: int, *, timeout_seconds: float | None = None) -> Permit:
        """Change `permit` to `n` in place and return it; growth may wait, and the old size stays held meanwhile.

        A failed update leaves the old size. Raises what `try_update` raises, PermitAcquireTimeout, and
        PermitAcquireCancelled if the permit is released during the wait. Source: PIP-442; docs/adr/0003.
        """
        if self.try_update(permit, n):
            return permit
        waiter = self._enqueue_grow(permit, n, timeout_seconds)
        try:
            outcome = await waiter
        except BaseException:
            self._abandon(waiter)
            raise
        if isinstance(outcome, Permit):
            permit.grow_waiter = None
            if permit.released:  # after the grant, before this task ran
                raise self._error(PermitAcquireCancelled, n)
            permit.requested = n
            return permit
        try:
            raise outcome
        finally:
            del outcome, waiter

    def release(self, permit: Permit) -> None:
        """Release all that `permit` holds and end its update, also after `close`; a second call does nothing.

        Raises ForeignPermit for a permit of another semaphore.
        """
        if permit.owner is not self:
            raise misuse_of(permit, self)
        if permit.released:
            return
        permit.released = True
        if permit.grow_waiter is not None and permit.grow_waiter.queue is not None:
            self._unlink(permit.grow_waiter)
            self._counter.cancelled += 1
            self._fail(permit.grow_waiter, PermitAcquireCancelled)
        self._ledger.resize(permit, 0)
        self._look_again(permit.key)

    def notify_waits(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever an acquire or a growth begins to wait; the rules of `limiter.observer` hold."""
        self._counter.on_wait.append(callback)

    # Settings, changed live

    def set_limit(self, limit: int) -> None:
        """Change the limit and serve the waiters that fit now; a limit below what is held shrinks no permit.

        In turns, waiters then stand in the order of their arrival, and deficits end, if the quantum changes.
        """
        self._ledger.set_limit(limit)
        self._acquirers.measure()
        self._serve()

    def share(
        self, name: str, part: float = 0, *, share_by_key: bool = False, kept_of: int = 0, beside: bool = False
    ) -> "AsyncSemaphore":
        """Return a share: as much as `part` of the limit, 0: no limit; who waits has the bounds of the whole.

        They wait for the whole, so its observer is told. What is granted without a wait, the whole grants, too.
        `beside`: they take nothing of the whole, and its observer hears nothing.
        """
        observer = None if beside else waits_of(self._counter.observer)
        share = AsyncSemaphore(
            name, 0, max_queue=0, timeout_seconds=0, clock=self._clock, observer=observer, share_by_key=share_by_key,
            kept_of=kept_of,
        )  # fmt: skip
        share._whole, share.part = self, part
        share.follow()
        return share

    def follow(self) -> None:
        """Take over what has changed of the whole, or of `part`, for a share; permits that are held stay held."""
        whole = self._whole
        assert whole is not None, "a share follows its whole"
        self.max_queue, self.timeout_seconds = whole.max_queue, whole.timeout_seconds
        self.set_limit(ceil(max(0, whole.limit) * self.part))

    def set_sharing(self, share_by_key: bool, key_cap_percent: int) -> None:
        """Serve the acquires of different keys in turns, by bytes, or all of them in one line.

        In turns, a key is granted acquires only up to `key_cap_percent` of the limit (100: no cap; None is a key, too).
        Waiters stay, in the order of their arrival; deficits end with a change of the sharing. Raises ValueError for a
        cap outside 1 to 100. Source: docs/adr/0007.
        """
        if not 1 <= key_cap_percent <= 100:
            raise ValueError(f"{self.name} limiter: expected a cap of 1 to 100 percent, got {key_cap_percent}")
        self._acquirers.set_sharing(share_by_key, key_cap_percent)
        self._serve()

    def close(self) -> None:
        """Refuse every later request and fail all waiters with PermitAcquireAlreadyClosed; a second call does nothing.

        Held permits stay valid: they may shrink and must be released.
        """
        self.closed = True
        waiters: list[Waiter] = [*self._growers, *self._acquirers]
        for waiter in waiters:
            self._take_out(waiter)
        for waiter in waiters:
            self._fail(waiter, PermitAcquireAlreadyClosed)
        self._deadlines.close()

    # Serving

    def _look_again(self, key: Hashable) -> None:
        """Serve who may go now that a key holds less."""
        if self._waiting:
            self._acquirers.freed(key)
            self._serve()

    def _look_at_site(self, key: Hashable) -> None:
        """Serve who may go now that a newcomer took the turn of its site, or goes first there: no plain key does."""
        if self._waiting and isinstance(key, SiteKey):
            self._serve()

    def _serve(self) -> None:
        """Grant what may be granted now, growth first."""
        granted: Waiter | None = None
        for _ in range(MOST_AT_ONCE):
            granted = self._grant_next()
            if granted is None:
                return
        if granted is not None and not self._goes_on:
            self._goes_on = True
            granted.get_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._serve()

    def _growth_goes_on(self) -> bool:
        """Return whether growth waits only for the next step of the loop: what is free is for it."""
        return self._goes_on and len(self._growers) > 0

    def _grant_next(self) -> Waiter | None:
        """Grant what is next, and return its waiter; None if nobody may go.

        Growth waits only while another permit overshoots, that is above the limit: nothing else fits then, neither
        later growth nor an acquire, so the calls that do not wait need not look at the growers. Growth of a key in
        deficit lets the next acquire that fits go first, and loses only that room: the first grower is granted in the
        same step, as an overshoot if need be.
        """
        grower = self._growers.head()
        if grower is None or self._acquirers.is_behind(grower.permit.key):
            acquirer = self._acquirers.next()
            if acquirer is not None and (size := self._ledger.room_for(acquirer.size)) != MUST_WAIT:
                self._acquirers.grant(acquirer, size)
                self._waiting -= 1
                self._deadlines.forget(acquirer)
                waited = self._clock.time() - acquirer.queued_at
                acquirer.set_result(self._book(acquirer.size, size, acquirer.key, waited))
                return acquirer
        if grower is None or not self._ledger.may_grow(grower.permit, grower.size):
            return None
        self._grant_grow(grower)
        return grower

    def _grant_grow(self, grower: GrowWaiter) -> None:
        self._unlink(grower)
        # `permit.grow_waiter` stays set until its task takes the grant: a cancel before that undoes the grant.
        self._grow(grower.permit, grower.size, self._clock.time() - grower.queued_at)
        grower.set_result(grower.permit)

    def _book(self, requested: int, size: int, key: Hashable, wait_seconds: float) -> Permit:
        permit = Permit(self, requested, key)
        self._ledger.resize(permit, size)
        self._counter.count_granted(wait_seconds)
        return permit

    def _grow(self, permit: Permit, n: int, wait_seconds: float) -> None:
        grown = n - permit.size
        self._ledger.resize(permit, n)
        if self._waiting:
            self._acquirers.spend(permit.key, grown)
        self._counter.count_granted(wait_seconds)

    def _shrink(self, permit: Permit, n: int) -> None:
        self._ledger.resize(permit, n)
        self._look_again(permit.key)

    def _abandon(self, waiter: Waiter) -> None:
        """Undo the grant of a waiter whose task will not take it; do nothing if there was no grant."""
        if waiter.cancel() or waiter.cancelled():
            return
        permit = waiter.result()
        if not isinstance(permit, Permit):
            return
        self._counter.cancelled += 1
        old_size = 0
        if isinstance(waiter, GrowWaiter):
            permit.grow_waiter = None
            old_size = waiter.previous_size
        if permit.released:
            return
        self._acquirers.spend(permit.key, old_size - permit.size)
        if isinstance(waiter, GrowWaiter):
            self._shrink(permit, waiter.previous_size)
        else:
            self.release(permit)

    # Waiting

    def _enqueue_acquire(self, n: int, key: Hashable, timeout_seconds: float | None) -> AcquireWaiter:
        now, seconds = self._times(n, timeout_seconds)
        if len(self._acquirers) >= self.max_queue > 0:
            self._counter.rejected += 1
            raise self._error(PermitAcquireQueueFull, n)
        waiter = AcquireWaiter(self, asyncio.get_running_loop(), n, now, seconds, key)
        self._acquirers.push(waiter)
        self._waiting += 1
        self._deadlines.watch(waiter)
        self._counter.count_queued()
        self._look_at_site(key)
        return waiter

    def _enqueue_grow(self, permit: Permit, n: int, timeout_seconds: float | None) -> GrowWaiter:
        now, seconds = self._times(n, timeout_seconds)
        waiter = permit.grow_waiter = GrowWaiter(permit, asyncio.get_running_loop(), n, now, seconds)
        self._growers.push((), waiter)
        self._waiting += 1
        self._deadlines.watch(waiter)
        self._counter.count_queued()
        return waiter

    def _times(self, n: int, timeout_seconds: float | None) -> tuple[float, float]:
        """Return the present moment and how long to wait; raise PermitAcquireTimeout if a request must not wait."""
        seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        if seconds <= 0:
            self._counter.count_timed_out(0.0)
            raise self._error(PermitAcquireTimeout, n)
        return self._clock.time(), seconds

    def _unlink(self, waiter: Waiter) -> None:
        self._take_out(waiter)
        self._deadlines.forget(waiter)

    def _take_out(self, waiter: Waiter) -> None:
        assert waiter.queue is not None, "the waiter is in line"
        self._waiting -= 1
        if isinstance(waiter, AcquireWaiter):
            self._acquirers.remove(waiter)
        elif isinstance(waiter, GrowWaiter):
            self._growers.remove(waiter)

    def _fail(self, waiter: Waiter, kind: type[PermitAcquireError]) -> None:
        if isinstance(waiter, GrowWaiter):
            waiter.permit.grow_waiter = None
        waiter.set_result(self._error(kind, waiter.size))

    def _expire(self, waiter: Waiter, now: float) -> None:
        """End a wait whose deadline has passed; called by `Deadlines`, which no longer watches the waiter."""
        self._take_out(waiter)
        self._fail(waiter, PermitAcquireTimeout)
        self._counter.count_timed_out(now - waiter.queued_at)
        self._serve()

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter, which calls this in the moment of its cancel, and serve those it held up."""
        self._unlink(waiter)
        if isinstance(waiter, GrowWaiter):
            waiter.permit.grow_waiter = None
        self._counter.cancelled += 1
        self._serve()

    def _error(self, kind: type[PermitAcquireError], asked: int) -> PermitAcquireError:
        return kind(self.name, self._ledger.limit, self._ledger.held, asked, len(self._acquirers))

    # Readings

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
        """Return how much is free, never below 0; `sys.maxsize` if unlimited."""
        return self._ledger.available

    @property
    def caps_keys(self) -> bool:
        """Return whether an acquire may have to wait for permits of its own key although it fits."""
        return self._acquirers.caps_keys

    @property
    def queue_size(self) -> int:
        """Return how many acquires wait: the number that `max_queue` bounds."""
        return len(self._acquirers)

    @property
    def growers_waiting(self) -> int:
        """Return how many held permits wait to grow."""
        return len(self._growers)

    @property
    def short(self) -> bool:
        """Return whether a request waits for room; acquires of a key at its cap wait for that key's permits only."""
        return len(self._growers) > 0 or self._acquirers.short

    def at_cap(self, key: Hashable, n: int) -> bool:
        """Return whether an acquire of `key` would wait for permits of its own key, however much is free."""
        return self._acquirers.at_cap(key, n)

    def waits_for_itself(self, key: Hashable) -> bool:
        """Return whether an acquire of `key` waits that only the key's own permits keep out."""
        return self._acquirers.is_capped(key)

    @property
    def share_by_key(self) -> bool:
        """Return whether acquires are served in turns by key, and not in one line."""
        return self._acquirers.shares

    def statistics(self) -> LimiterStatistics:
        """Return all numbers of this moment."""
        ledger, events = self._ledger, self._counter
        keys_waiting, keys_capped, debt = self._acquirers.keys()
        return LimiterStatistics(
            name=self.name,
            limit=ledger.limit,
            held=ledger.held,
            peak_held=ledger.peak_held,
            queue_size=len(self._acquirers),
            growers_waiting=len(self._growers),
            max_queue=self.max_queue,
            queued=events.queued,
            granted=events.granted,
            timed_out=events.timed_out,
            rejected=events.rejected,
            cancelled=events.cancelled,
            overshoots=ledger.overshoots,
            observer_errors=events.observer_errors,
            keys_waiting=keys_waiting,
            keys_capped=keys_capped,
            debt=debt,
        )

    def top_holders(self, count: int) -> list[tuple[Hashable, int]]:
        """Return up to `count` keys with what they hold, largest first; permits without a key are left out."""
        return heapq.nlargest(count, self._ledger.holders.items(), key=itemgetter(1))

    def waiters(self, count: int, at_once: int) -> Iterator[list[WaiterStatistics]]:
        """Yield up to `count` waiters, `at_once` at a time: growers first, then acquires in the order of service.

        With sharing by key that order is the keys' turns, see `AcquireLine.__iter__`. The first step lists the
        first waiter of each key (some 0.2 us each) and finds those asked for; later steps skip waiters that have left
        since. Only weak references (80 bytes each) are kept between the steps, so waiters may come and leave.
        """
        # The iterators end here: one that is not exhausted keeps its last waiter alive.
        found = [ref(each) for each in islice(chain[GrowWaiter | AcquireWaiter](self._growers, self._acquirers), count)]
        for start in range(0, len(found), at_once):
            alive = (look() for look in found[start : start + at_once])
            waiting = (waiter for waiter in alive if waiter is not None and waiter.queue is not None)
            now = self._clock.time()
            yield [WaiterStatistics.of(waiter, now) for waiter in waiting]
