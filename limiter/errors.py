"""The exceptions of the limiter.

    LimiterError
    ├── PermitAcquireError               a request ended without permits; carries the numbers of that moment
    │   ├── PermitAcquireTimeout         the deadline passed
    │   ├── PermitAcquireQueueFull       the queue is at its bound
    │   ├── PermitAcquireCancelled       the permit was released while its growth waited
    │   └── PermitAcquireAlreadyClosed   the semaphore is closed, or was closed during the wait
    └── ForeignPermit                    misuse: a permit of another semaphore, or a released permit
        └── PermitBusy                   misuse: an update of the permit is under way already

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
    """Parent of every exception of this package, except ValueError and TypeError for wrong arguments."""


class PermitAcquireError(LimiterError):
    """A request ended without permits; carries the limiter's numbers at that moment.

    The limiter knows no configuration keys: the code that logs this error adds the key to change.
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
    """The deadline passed before the permits were free."""

    reason = "timed out waiting for permits"


class PermitAcquireQueueFull(PermitAcquireError):
    """The request would have had to wait and the queue is full."""

    reason = "queue full"


class PermitAcquireCancelled(PermitAcquireError):
    """The permit was released while an update of it was under way."""

    reason = "permit released during its update"


class PermitAcquireAlreadyClosed(PermitAcquireError):
    """The semaphore no longer grants permits."""

    reason = "already closed"


class ForeignPermit(LimiterError):
    """A permit was used where it is not valid; always a bug of the caller."""


class PermitBusy(ForeignPermit):
    """A second update of a permit was requested before the first had ended."""
