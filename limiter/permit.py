"""The permit, and the waiters that end in a permit: futures that know their place in line.

Neither decides anything: only the semaphore that made a permit or a waiter writes its fields. Permits and waiters share
a module because each names the other: a permit has the waiter of its growth, and a waiter ends in a permit.
"""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import TYPE_CHECKING, Any

from limiter.errors import ForeignPermit, PermitAcquireError, PermitBusy

if TYPE_CHECKING:
    from limiter.semaphore import AsyncSemaphore

__all__ = ["AcquireWaiter", "GrowWaiter", "Permit", "Waiter", "misuse_of"]


class Permit:
    """A booked share of a semaphore; `with permit:` releases it at the end.

    `size` is the size booked (0 after the release), `requested` the size asked for last: more than `size` only when an
    acquire larger than the whole limit was clamped. `grow_waiter` is the waiter of an update that waits.
    """

    __slots__ = ("grow_waiter", "key", "owner", "released", "requested", "size")

    def __init__(self, owner: "AsyncSemaphore", requested: int, key: Hashable) -> None:
        self.owner = owner
        self.requested = requested
        self.size = 0  # until the ledger has booked it
        self.key = key
        self.released = False
        self.grow_waiter: GrowWaiter | None = None

    def release(self) -> None:
        """Release the whole size; a second call does nothing."""
        self.owner.release(self)

    def update(self, n: int, *, timeout_seconds: float | None = None) -> Coroutine[Any, Any, "Permit"]:
        """Change the size to `n`, waiting if need be; see `AsyncSemaphore.update`."""
        return self.owner.update(self, n, timeout_seconds=timeout_seconds)

    def try_update(self, n: int) -> bool:
        """Change the size to `n` if that needs no wait; see `AsyncSemaphore.try_update`."""
        return self.owner.try_update(self, n)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.owner.release(self)

    def __repr__(self) -> str:
        state = "released" if self.released else "growing" if self.grow_waiter is not None else "held"
        sizes = f"size={self.size} requested={self.requested}"
        return f"<Permit of {self.owner.name}: {state} {sizes} key={self.key!r}>"


_Outcome = asyncio.Future[Permit | PermitAcquireError]


class Waiter(_Outcome):
    """A future that knows its place in line and leaves it in the moment of `cancel()`.

    `Task.cancel` calls `cancel` on the future that the task awaits, so the place is free before the task runs again; a
    plain future would keep the place until then. Errors are set as results, too: asyncio logs an exception of a future
    that no task awaits any more as lost.
    """

    __slots__ = ("next", "owner", "previous", "queue", "queued_at", "seconds", "size")

    def __init__(
        self, owner: "AsyncSemaphore", loop: asyncio.AbstractEventLoop, size: int, queued_at: float, seconds: float
    ) -> None:
        super().__init__(loop=loop)
        self.owner = owner
        self.size = size  # the size asked for; of a growth the new total
        self.queued_at = queued_at
        # For most waiters it is the number that the semaphore has, where a deadline would be one more object.
        self.seconds = seconds
        # The list of the line that it is in: None once it has left.
        self.queue: Any = None
        self.previous: Any = None
        self.next: Any = None

    def cancel(self, msg: object = None) -> bool:
        """Leave the line at once and end as cancelled; return False if there is an outcome already."""
        if not super().cancel(msg):
            return False
        if self.queue is not None:
            self.owner.leave(self)
        return True

    @property
    def deadline(self) -> float:
        """Return the moment at which the wait ends without a grant."""
        return self.queued_at + self.seconds

    def __lt__(self, other: "Waiter") -> bool:
        return self.queued_at + self.seconds < other.queued_at + other.seconds


class AcquireWaiter(Waiter):
    """The waiter of an acquire; `about` is its purpose."""

    __slots__ = ("about", "key")

    def __init__(
        self,
        owner: "AsyncSemaphore",
        loop: asyncio.AbstractEventLoop,
        size: int,
        queued_at: float,
        seconds: float,
        key: Hashable,
    ) -> None:
        super().__init__(owner, loop, size, queued_at, seconds)
        self.key = key
        self.about: Hashable = None


class GrowWaiter(Waiter):
    """The waiter of an update that grows `permit`; `previous_size` is restored if the grant is not taken."""

    __slots__ = ("permit", "previous_size")

    def __init__(
        self, permit: Permit, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, seconds: float
    ) -> None:
        super().__init__(permit.owner, loop, size, queued_at, seconds)
        self.permit = permit
        self.previous_size = permit.size


def misuse_of(permit: Permit, by: "AsyncSemaphore") -> ForeignPermit:
    """Return the error for a permit that the semaphore `by` must not use."""
    if permit.owner is not by:
        return ForeignPermit(f"{by.name} limiter: expected a permit of its own, got {permit!r}")
    if permit.released:
        return ForeignPermit(f"{by.name} limiter: expected a permit that is held, got {permit!r}")
    return PermitBusy(f"{by.name} limiter: expected a permit with no update under way, got {permit!r}")
