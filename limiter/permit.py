"""Own the permit: how much of a semaphore its holder has booked, and whether it still holds it.

Only the semaphore that made a permit writes its fields. A permit knows no queue and decides nothing.
"""

from collections.abc import Coroutine, Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from limiter.errors import ForeignPermit, PermitBusy

if TYPE_CHECKING:
    from limiter.queue import Growth
    from limiter.semaphore import AsyncSemaphore

__all__ = ["Permit", "misuse_of"]


class Permit:
    """A booked share of a semaphore; `with permit:` (or `async with`) releases it at the end.

    `size` is what is booked (0 after the release), `requested` what was asked for last: more than `size` only
    when an acquire larger than the whole limit was clamped. `growth` is the waiter of an update under way.
    """

    __slots__ = ("growth", "key", "owner", "released", "requested", "size")

    def __init__(self, owner: "AsyncSemaphore", requested: int, key: Hashable) -> None:
        self.owner = owner
        self.requested = requested
        self.size = 0  # until the ledger has booked it
        self.key = key
        self.released = False
        self.growth: Growth | None = None

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
        state = "released" if self.released else "growing" if self.growth is not None else "held"
        sizes = f"size={self.size} requested={self.requested}"
        return f"<Permit of {self.owner.name}: {state} {sizes} key={self.key!r}>"


def misuse_of(permit: Permit, by: "AsyncSemaphore") -> ForeignPermit:
    """Say what is wrong with `permit` in the hands of that semaphore."""
    if permit.owner is not by:
        return ForeignPermit(f"{by.name} limiter: expected a permit of its own, got {permit!r}")
    if permit.released:
        return ForeignPermit(f"{by.name} limiter: expected a permit that is held, got {permit!r}")
    return PermitBusy(f"{by.name} limiter: expected a permit with no update under way, got {permit!r}")
