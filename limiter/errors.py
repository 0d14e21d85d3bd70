"""Own the exceptions of the limiter; know nothing of Pulsar, connections or metrics.

    LimiterError +- PermitAcquireError              a wait for permits ended without them; carries the numbers
    of that moment |  +- PermitAcquireTimeout         the deadline passed |  +- PermitAcquireQueueFull
    as many wait already as may wait |  +- PermitAcquireCancelled       the permit was released while it
    waited to grow |  +- PermitAcquireAlreadyClosed   the semaphore is closed, or was closed during the wait
    +- ForeignPermit                   misuse: a permit of another semaphore, or a released one
       +- PermitBusy                   misuse: the permit is being updated already

The names of the acquire errors are those of PIP-442.
"""

from typing import ClassVar

__all__ = [
    "ForeignPermit",
    "LimiterError",
    "PermitAcquireAlreadyClosed",
    "PermitAcquireCancelled",
    "PermitAcquireError",
    "PermitAcquireQueueFull",
    "PermitAcquireTimeout",
    "PermitBusy",
]


class LimiterError(Exception):
    """Be the parent of everything that this package raises, but for ValueError on wrong arguments."""


class PermitAcquireError(LimiterError):
    """Tell why permits were not given, with the limiter's numbers at that moment.

    The limiter does not know configuration keys: whoever logs this adds the key to change.
    """

    reason: ClassVar[str] = "no permits given"

    def __init__(self, limiter: str, limit: int, held: int, asked: int, queued: int) -> None:
        super().__init__(limiter, limit, held, asked, queued)
        self.limiter = limiter
        self.limit = limit
        self.held = held
        self.asked = asked
        self.queued = queued

    def __str__(self) -> str:
        limit = str(self.limit) if self.limit > 0 else "unlimited"
        return (
            f"{self.limiter} limiter: {self.reason}: "
            f"asked {self.asked}, held {self.held}, limit {limit}, queued {self.queued}"
        )


class PermitAcquireTimeout(PermitAcquireError):
    """Tell that the deadline passed before the permits were free."""

    reason = "timed out waiting for permits"


class PermitAcquireQueueFull(PermitAcquireError):
    """Tell that the request would have had to wait and the queue is full."""

    reason = "queue full"


class PermitAcquireCancelled(PermitAcquireError):
    """Tell that the permit was released while an update of it was under way."""

    reason = "permit released during its update"


class PermitAcquireAlreadyClosed(PermitAcquireError):
    """Tell that the semaphore no longer gives permits."""

    reason = "already closed"


class ForeignPermit(LimiterError):
    """Tell that a permit was used where it has no validity; always a bug of the caller."""


class PermitBusy(ForeignPermit):
    """Tell that a second update of a permit was asked for before the first had ended."""
