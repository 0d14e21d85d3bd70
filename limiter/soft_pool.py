"""A soft pool (KIP-72): it grants while anything is free, however much is asked for, and counts who waits.

Rule: who was granted last may pass the limit, so the largest single unit never starves. Bytes are booked when they are
held, and whenever that changes.
"""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["LocalBooks", "PoolRecord"]


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


class LocalBooks:
    """The books of a pool without threads; `now` is a clock in seconds."""

    __slots__ = ("_depleted", "_limit", "_muted", "_now", "_overshoots", "_used")

    def __init__(self, limit_bytes: int, now: Callable[[], float]) -> None:
        self._limit = limit_bytes
        self._now = now
        self._used = self._overshoots = 0
        self._muted, self._depleted = _Span(), _Span()

    def pool(self) -> tuple[int, int, int, float, int, float]:
        """Return the numbers of a `PoolRecord`."""
        now, muted, depleted = self._now(), self._muted, self._depleted
        return self._limit, self._used, muted.count, muted.millis(now), self._overshoots, depleted.millis(now)

    def pool_scarce(self) -> bool:
        """Return whether nothing is free, or somebody waits."""
        return self._used >= self._limit or self._muted.count > 0

    def pool_change(self, before: int, after: int) -> None:
        """Record that somebody who held `before` bytes holds `after`.

        Raises ValueError for bytes that nobody holds: a second release, or one of another pool, is no drift (K6).
        """
        used = self._used + after - before
        if used < 0:
            raise ValueError(f"got a change from {before} to {after} bytes, and the pool has {self._used}")
        had = self._used < self._limit
        self._used = used
        has = self._used < self._limit
        if had and not has:
            self._overshoots += self._used > self._limit
            self._depleted.change(1, self._now())
        elif has and not had:
            self._depleted.change(-1, self._now())

    def pool_wait(self, before: int, after: int) -> None:
        """Record that `after` members wait, `before` until now."""
        self._muted.change(after - before, self._now())
