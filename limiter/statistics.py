"""Frozen records of a semaphore's state, and the functions that fill them."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from weakref import ref

from limiter.acquires import AcquireLine
from limiter.ledger import Ledger
from limiter.observer import EventCounter
from limiter.permit import AcquireWaiter, GrowWaiter

__all__ = ["LimiterStatistics", "WaiterStatistics", "statistics_of", "waiter_references", "waiter_statistics"]


@dataclass(frozen=True, slots=True)
class LimiterStatistics:
    """The numbers of one moment.

    `queued` to `observer_errors` are counters since construction, the other numbers are current values. The last three
    are 0 where keys do not share: keys that wait (a site's are one), keys that wait only because of their cap, and the
    deficit of all keys for growth and large requests. The field names are keys of the admin JSON.
    """

    name: str
    limit: int
    held: int
    peak_held: int
    queue_size: int
    growers_waiting: int
    max_queue: int
    queued: int
    granted: int
    timed_out: int
    rejected: int
    cancelled: int
    overshoots: int
    observer_errors: int
    keys_waiting: int = 0
    keys_capped: int = 0
    debt: int = 0


@dataclass(frozen=True, slots=True)
class WaiterStatistics:
    """A waiter: the key that is charged, its purpose, the size asked for, the time waited.

    The request fails after `seconds_left`. `grows`: the request is an update, and `size` the permit's new size.
    """

    key: Hashable
    about: Hashable
    size: int
    waited_seconds: float
    seconds_left: float
    grows: bool


def statistics_of(
    name: str,
    max_queue: int,
    ledger: Ledger,
    events: EventCounter,
    acquirers: AcquireLine,
    growers_waiting: int,
) -> LimiterStatistics:
    """Return all numbers of this moment for one semaphore."""
    keys_waiting, keys_capped, debt = acquirers.keys()
    return LimiterStatistics(
        name=name,
        limit=ledger.limit,
        held=ledger.held,
        peak_held=ledger.peak_held,
        queue_size=len(acquirers),
        growers_waiting=growers_waiting,
        max_queue=max_queue,
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


def waiter_references(
    growers: Iterable[GrowWaiter], acquirers: Iterable[AcquireWaiter], count: int
) -> list[ref[GrowWaiter | AcquireWaiter]]:
    """Return weak references to up to `count` waiters, growers first.

    The iterators end with this function: an iterator that is not exhausted keeps its last waiter alive.
    """
    waiting: Iterator[GrowWaiter | AcquireWaiter] = chain(growers, acquirers)
    return [ref(waiter) for waiter in islice(waiting, count)]


def waiter_statistics(references: list[ref[GrowWaiter | AcquireWaiter]], now: float) -> list[WaiterStatistics]:
    """Return a record of each referenced waiter that is still queued."""
    waiters = (look() for look in references)
    return [_statistics(waiter, now) for waiter in waiters if waiter is not None and waiter.queue is not None]


def _statistics(waiter: GrowWaiter | AcquireWaiter, now: float) -> WaiterStatistics:
    waited, left = now - waiter.queued_at, waiter.deadline - now
    if isinstance(waiter, GrowWaiter):
        return WaiterStatistics(waiter.permit.key, None, waiter.size, waited, left, grows=True)
    return WaiterStatistics(waiter.key, waiter.about, waiter.size, waited, left, grows=False)
