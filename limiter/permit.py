"""Own the permit, and the waiters that end in one: futures which know their place in a queue; decide nothing.

Only the semaphore that made a permit writes its fields. A permit knows no queue and decides nothing.
"""

import asyncio
from collections.abc import Coroutine, Hashable
from types import TracebackType
from typing import Any, Protocol

from limiter.errors import ForeignPermit, PermitAcquireError, PermitBusy
from limiter.queue import WaiterQueue

__all__ = ["AcquireWaiter", "GrowWaiter", "Permit", "PermitOwner", "Waiter", "misuse_of"]


class PermitOwner(Protocol):
    """What a permit asks of the semaphore that made it."""

    name: str

    def release(self, permit: "Permit") -> None:
        """Give back all that `permit` holds."""

    def update(
        self, permit: "Permit", n: int, *, timeout_seconds: float | None = None
    ) -> Coroutine[Any, Any, "Permit"]:
        """Change `permit` to `n`, waiting if it must."""

    def try_update(self, permit: "Permit", n: int) -> bool:
        """Change `permit` to `n` if that needs no waiting."""


class Permit:
    """A booked share of a semaphore; `with permit:` (or `async with`) releases it at the end.

    `size` is what is booked (0 after the release), `requested` what was asked for last: more than `size` only
    when an acquire larger than the whole limit was clamped. `growth` is the waiter of an update under way.
    """

    __slots__ = ("grow_waiter", "key", "owner", "released", "requested", "size")

    def __init__(self, owner: PermitOwner, requested: int, key: Hashable) -> None:
        self.owner = owner
        self.requested = requested
        self.size = 0  # until the ledger has booked it
        self.key = key
        self.released = False
        self.grow_waiter: GrowWaiter | None = None

    def release(self) -> None:
        """Give everything back; a second call does nothing."""
        self.owner.release(self)

    def update(self, n: int, *, timeout_seconds: float | None = None) -> Coroutine[Any, Any, "Permit"]:
        """Change the size to `n`, waiting if it must; see `AsyncSemaphore.update`."""
        return self.owner.update(self, n, timeout_seconds=timeout_seconds)

    def try_update(self, n: int) -> bool:
        """Change the size to `n` if that needs no waiting; see `AsyncSemaphore.try_update`."""
        return self.owner.try_update(self, n)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.owner.release(self)

    async def __aenter__(self) -> "Permit":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.owner.release(self)

    def __repr__(self) -> str:
        state = "released" if self.released else "growing" if self.grow_waiter is not None else "held"
        sizes = f"size={self.size} requested={self.requested}"
        return f"<Permit of {self.owner.name}: {state} {sizes} key={self.key!r}>"


_Outcome = asyncio.Future[Permit | PermitAcquireError]


class Waiter(_Outcome):
    """One that waits: a future which knows its place in the queue and leaves it in the moment of `cancel()`.

    `Task.cancel` calls `cancel` on what the task awaits, so the place is free before the task runs again; a
    plain future would keep it until then. The outcome is a result even if it is an error: an exception set on
    a future that nobody awaits any more is logged by asyncio as lost.
    """

    __slots__ = ("deadline", "next", "previous", "queue", "queued_at", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float) -> None:
        super().__init__(loop=loop)
        self.size = size  # asked for; for a growth the new total
        self.queued_at = queued_at
        self.deadline = deadline
        self.queue: WaiterQueue[Any] | None = None
        # The links are the queue's: it alone knows which kind of waiter it holds.
        self.previous: Any = None
        self.next: Any = None

    def cancel(self, msg: object = None) -> bool:
        """Leave the queue at once and end as cancelled; False if the outcome is known already."""
        queue = self.queue
        if not super().cancel(msg):
            return False
        if queue is not None:
            queue.on_cancel(self)
        return True

    def __lt__(self, other: "Waiter") -> bool:
        return self.deadline < other.deadline


class AcquireWaiter(Waiter):
    """One that holds nothing yet; `arrival` is its place in the order of all, where keys are served in turns.

    `about` is what its claim says that it is for.
    """

    __slots__ = ("about", "arrival", "extended_until", "key")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float, key: Hashable
    ) -> None:
        super().__init__(loop, size, queued_at, deadline)
        self.key = key
        self.about: Hashable = None
        self.extended_until = deadline
        self.arrival = 0

    def permit(self) -> Permit | None:
        """Return what it was given, None if nothing (yet)."""
        outcome = self.result() if self.done() and not self.cancelled() else None
        return None if isinstance(outcome, PermitAcquireError) else outcome


class GrowWaiter(Waiter):
    """The growth of a held permit; `previous_size` is what to go back to if the grant is not taken."""

    __slots__ = ("permit", "previous_size")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float, permit: Permit
    ) -> None:
        super().__init__(loop, size, queued_at, deadline)
        self.permit = permit
        self.previous_size = permit.size


def misuse_of(permit: Permit, by: PermitOwner) -> ForeignPermit:
    """Say what is wrong with `permit` in the hands of that semaphore."""
    if permit.owner is not by:
        return ForeignPermit(f"{by.name} limiter: expected a permit of its own, got {permit!r}")
    if permit.released:
        return ForeignPermit(f"{by.name} limiter: expected a permit that is held, got {permit!r}")
    return PermitBusy(f"{by.name} limiter: expected a permit with no update under way, got {permit!r}")
