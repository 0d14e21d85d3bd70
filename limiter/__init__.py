"""Own the memory limiter of PIP-442: futures and integers; know no Pulsar, no sockets and no metrics library.

Map, from the ground up:
    errors      what ends a wait, and misuse
    clock       what is asked of a clock; a running loop is one
    observer    what is told to the outside
    queue       who waits, in which order
    permit      a booked share, and the waiters that end in one
    ledger      who holds how much, what fits, who overshoots
    shares      in which order, when keys go in turns
    deadlines   until when, with one timer for all
    claim       who is charged, changeable
    statistics  frozen records of the state
    semaphore   the decisions: AsyncSemaphore
    dual        heap and direct: AsyncDualMemoryLimiter
    helpers     a permit held around an operation
"""

from limiter.charge import Charge
from limiter.clock import Clock, Timer
from limiter.dual import AsyncDualMemoryLimiter, LimitType
from limiter.errors import (
    ForeignPermit,
    LimiterError,
    PermitAcquireAlreadyClosed,
    PermitAcquireCancelled,
    PermitAcquireError,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
    PermitBusy,
)
from limiter.helpers import with_acquired_permits, with_updated_permits, write_with_direct_permits
from limiter.observer import LimiterObserver
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from limiter.statistics import LimiterStatistics

__all__ = [
    "AsyncDualMemoryLimiter",
    "AsyncSemaphore",
    "Charge",
    "Clock",
    "ForeignPermit",
    "LimitType",
    "LimiterError",
    "LimiterObserver",
    "LimiterStatistics",
    "Permit",
    "PermitAcquireAlreadyClosed",
    "PermitAcquireCancelled",
    "PermitAcquireError",
    "PermitAcquireQueueFull",
    "PermitAcquireTimeout",
    "PermitBusy",
    "Timer",
    "with_acquired_permits",
    "with_updated_permits",
    "write_with_direct_permits",
]
