"""A soft pool (KIP-72): it grants while anything is free, however much is asked for, and counts who waits.

Rule: who was granted last may pass the limit, so the largest single unit never starves. Bytes are booked when they are
held, and whenever that changes.
"""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["PoolRecord", "SoftPool"]


class PoolRecord(NamedTuple):
    """The numbers of a pool, in the order of the extension; times in milliseconds, with what still lasts."""

    limit_bytes: int
    used_bytes: int
    muted: int
    muted_millis: float
    overshoots: int
    depleted_millis: float


class _Span:
    """How often something is the case, and how long it was in all."""

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0

    def change(self, by: int, now: float) -> None:
        self.count += by
        self._sum += by * now

    def millis(self, now: float) -> float:
        return max(0.0, self.count * now - self._sum) * 1000


class SoftPool:
    """The books of a pool; `now` is a clock in seconds."""

    __slots__ = ("_depleted", "_limit", "_muted", "_now", "_overshoots", "_used")

    def __init__(self, limit_bytes: int, now: Callable[[], float]) -> None:
        self._limit = limit_bytes
        self._now = now
        self._used = self._overshoots = 0
        self._muted, self._depleted = _Span(), _Span()

    def record(self) -> PoolRecord:
        """Return the numbers of this moment."""
        now, muted, depleted = self._now(), self._muted, self._depleted
        return PoolRecord(
            self._limit, self._used, muted.count, muted.millis(now), self._overshoots, depleted.millis(now)
        )

    @property
    def scarce(self) -> bool:
        """Return whether nothing is free, or somebody waits."""
        return self._used >= self._limit or self._muted.count > 0

    def book(self, size: int) -> None:
        """Record that so many bytes more are held, or fewer.

        Raises ValueError for bytes that nobody holds: a second release, or one of another pool, is no drift (K6).
        """
        used = self._used + size
        if used < 0:
            raise ValueError(f"got a change of {size} bytes, and the pool has {self._used}")
        free, self._used = self._used < self._limit, used
        if free is not (used < self._limit):
            self._overshoots += used > self._limit
            self._depleted.change(1 if free else -1, self._now())

    def wait(self, members: int) -> None:
        """Record that so many members more wait, or fewer."""
        self._muted.change(members, self._now())
