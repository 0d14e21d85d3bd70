"""Own what anybody may look at in a semaphore; change nothing but the order that sharing keeps up to date.

`AsyncSemaphore` is made of these fields and writes them; here they are only read.
"""

import heapq
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from weakref import ref

from limiter.clock import Clock
from limiter.deadlines import Deadlines
from limiter.ledger import Ledger
from limiter.observer import LimiterStatistics, Tally
from limiter.queue import Growth, Newcomer, WaiterQueue
from limiter.shares import Shares

__all__ = ["Readings", "WaiterReading"]


@dataclass(frozen=True, slots=True)
class WaiterReading:
    """One that waits: who is charged, what it is about (see `Claim`), what it asks for, how long it has waited.

    After `seconds_left` it is refused. `grows`: it holds a permit already, and `size` is what that is to become.
    """

    key: Hashable
    about: Hashable
    size: int
    waited_seconds: float
    seconds_left: float
    grows: bool


class Readings:
    """The state of a semaphore, seen from outside."""

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

    name: str
    max_queue: int
    timeout_seconds: float
    _clock: Clock
    _closed: bool
    _ledger: Ledger
    _tally: Tally
    _newcomers: WaiterQueue[Newcomer] | Shares
    _shares: Shares | None  # the newcomers, if they share
    _growers: WaiterQueue[Growth]
    _deadlines: Deadlines

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
        ledger, tally, shares = self._ledger, self._tally, self._shares
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
            keys_waiting=0 if shares is None else shares.keys_waiting,
            keys_capped=0 if shares is None else shares.keys_capped,
            debt=0 if shares is None else shares.debt(),
        )

    def top_holders(self, count: int) -> list[tuple[Hashable, int]]:
        """Return up to `count` keys with what they hold, most first; permits without a key are not in it."""
        return heapq.nlargest(count, self._ledger.holders.items(), key=itemgetter(1))

    def waiters(self, count: int, at_once: int) -> Iterator[list[WaiterReading]]:
        """Yield up to `count` of those who wait, `at_once` at a time: growers first, then newcomers as they are served.

        With sharing by key that order is the keys' turns, see `Shares.__iter__`. Between two steps anybody may come, go
        or change keys: who waits is found in the first step (0.2 us each, no more than `count` are looked at), who has
        left since is passed over, and nobody is kept alive: an asker holds 80 bytes for each of them.
        """
        found = self._found(count)
        for start in range(0, len(found), at_once):
            now, step = self._clock.time(), (look() for look in found[start : start + at_once])
            yield [_reading(waiter, now) for waiter in step if waiter is not None and waiter.queue is not None]

    def _found(self, count: int) -> list[ref[Growth | Newcomer]]:
        # Apart: an iterator that is not at its end keeps the waiter alive that it came to last.
        waiting: Iterator[Growth | Newcomer] = chain(self._growers, self._newcomers)
        return [ref(waiter) for waiter in islice(waiting, count)]

    def __repr__(self) -> str:
        limit = str(self.limit) if self.limit > 0 else "unlimited"
        closed = " closed" if self._closed else ""
        waiting = f"queued {len(self._newcomers)}, growing {len(self._growers)}"
        return f"<AsyncSemaphore {self.name}{closed}: held {self.held} of {limit}, {waiting}>"


def _reading(waiter: Growth | Newcomer, now: float) -> WaiterReading:
    waited = now - waiter.queued_at
    if isinstance(waiter, Growth):
        return WaiterReading(waiter.permit.key, None, waiter.size, waited, waiter.deadline - now, grows=True)
    until = max(waiter.deadline, waiter.patient_until)
    return WaiterReading(waiter.key, waiter.about, waiter.size, waited, until - now, grows=False)
