"""Own the frozen records of a semaphore's state, and the functions that fill them; change nothing."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from weakref import ref

from limiter.fair_queue import FairQueue
from limiter.ledger import Ledger
from limiter.observer import EventCounter
from limiter.permit import AcquireWaiter, GrowWaiter

__all__ = ["LimiterStatistics", "WaiterStatistics", "statistics_of", "waiter_references", "waiter_statistics"]


@dataclass(frozen=True, slots=True)
class LimiterStatistics:
    """The numbers of one moment: up to `max_queue` measures, behind it counters since construction.

    The last three are measures again, and 0 where nothing is shared by key: keys that wait, those of them that
    their cap keeps out, and what all keys owe for growth and for large requests.
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
    """One that waits: who is charged, what it is about (see `Claim`), what it asks for, how long it has waited.

    After `seconds_left` it is refused. `grows`: it holds a permit already, and `size` is what that is to become.
    """

    key: Hashable
    about: Hashable
    size: int
    waited_seconds: float
    seconds_left: float
    grows: bool


def statistics_of(
    name: str,
    ledger: Ledger,
    events: EventCounter,
    fair_queue: FairQueue | None,
    *,
    queue_size: int,
    growers_waiting: int,
    max_queue: int,
) -> LimiterStatistics:
    """Return all numbers of this moment."""
    return LimiterStatistics(
        name=name,
        limit=ledger.limit,
        held=ledger.held,
        peak_held=ledger.peak_held,
        queue_size=queue_size,
        growers_waiting=growers_waiting,
        max_queue=max_queue,
        queued=events.queued,
        granted=events.granted,
        timed_out=events.timed_out,
        rejected=events.rejected,
        cancelled=events.cancelled,
        overshoots=ledger.overshoots,
        observer_errors=events.observer_errors,
        keys_waiting=0 if fair_queue is None else fair_queue.keys_waiting,
        keys_capped=0 if fair_queue is None else fair_queue.keys_capped,
        debt=0 if fair_queue is None else fair_queue.deficit(),
    )


def waiter_references(
    growers: Iterable[GrowWaiter], acquirers: Iterable[AcquireWaiter], count: int
) -> list[ref[GrowWaiter | AcquireWaiter]]:
    """Return weak references to up to `count` waiters, growers first.

    A function of its own: an iterator that is not at its end keeps the waiter alive that it came to last.
    """
    waiting: Iterator[GrowWaiter | AcquireWaiter] = chain(growers, acquirers)
    return [ref(waiter) for waiter in islice(waiting, count)]


def waiter_statistics(references: list[ref[GrowWaiter | AcquireWaiter]], now: float) -> list[WaiterStatistics]:
    """Return a reading of each waiter that still waits."""
    waiters = (look() for look in references)
    return [_statistics(waiter, now) for waiter in waiters if waiter is not None and waiter.queue is not None]


def _statistics(waiter: GrowWaiter | AcquireWaiter, now: float) -> WaiterStatistics:
    waited = now - waiter.queued_at
    if isinstance(waiter, GrowWaiter):
        return WaiterStatistics(waiter.permit.key, None, waiter.size, waited, waiter.deadline - now, grows=True)
    until = max(waiter.deadline, waiter.extended_until)
    return WaiterStatistics(waiter.key, waiter.about, waiter.size, waited, until - now, grows=False)
