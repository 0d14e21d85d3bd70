"""Frozen records of a semaphore's state."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Self

from limiter.permit import AcquireWaiter, GrowWaiter

__all__ = ["LimiterStatistics", "WaiterStatistics"]


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

    @classmethod
    def of(cls, waiter: GrowWaiter | AcquireWaiter, now: float) -> Self:
        """Return the record of a waiter at that moment."""
        waited, left = now - waiter.queued_at, waiter.deadline - now
        if isinstance(waiter, GrowWaiter):
            return cls(waiter.permit.key, None, waiter.size, waited, left, grows=True)
        return cls(waiter.key, waiter.about, waiter.size, waited, left, grows=False)
