"""The memory limiter of PIP-442: futures and integers, no Pulsar, no sockets, no clock and no metrics library.

May import the standard library only. Start with `semaphore` (what is granted, and when; a share is a part of one),
then `dual` (heap and direct memory). Below `semaphore` are `ledger` (how much is held), `acquires` (which acquire is
next), `sites` (keys that share a turn), `deadlines` (when a wait ends) and `permit` (a caller's handle); `statistics`
and `observer` are for those who look, `clock` and `errors` for all. All that waits in turns waits in a `fair_line`, in
the proxy, too. Apart from these stands `soft_pool` (KIP-72: grants while anything is free).

Rule: the pipeline has the rules of a permit a second time, in `pipeline/replay/kernel*.py`. Change both;
`tests/property/test_replay_limiter.py` runs both on the same input.
"""

from limiter.dual import AsyncDualMemoryLimiter
from limiter.errors import (
    ForeignPermit,
    PermitAcquireAlreadyClosed,
    PermitAcquireCancelled,
    PermitAcquireError,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
    PermitBusy,
)
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore

__all__ = [
    "AsyncDualMemoryLimiter",
    "AsyncSemaphore",
    "ForeignPermit",
    "Permit",
    "PermitAcquireAlreadyClosed",
    "PermitAcquireCancelled",
    "PermitAcquireError",
    "PermitAcquireQueueFull",
    "PermitAcquireTimeout",
    "PermitBusy",
]
