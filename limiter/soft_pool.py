"""A soft pool (KIP-72): it grants while anything is free, however much is asked for, and has others wait in a line.

Rule: who was granted last may pass the limit, so the largest single unit never starves; who waits is served in the
order of coming, from a random place of the line on. Bytes are booked when they are held, and whenever that changes.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["LocalBooks", "PoolLine", "PoolRecord"]


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

    def pool_free(self) -> bool:
        """Return whether anything is free."""
        return self._used < self._limit

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


M = TypeVar("M", bound=Hashable)


class PoolLine(Generic[M]):
    """The line of those that wait for memory; `random_below` says where it begins."""

    __slots__ = ("_books", "_fresh", "_line", "_random_below")

    def __init__(self, books: LocalBooks, random_below: Callable[[int], int]) -> None:
        self._books = books
        self._random_below = random_below
        # A plain dict would look through all members removed from its front.
        self._line: OrderedDict[M, None] = OrderedDict()
        # Nobody of this line has had a turn yet.
        self._fresh = True

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, member: M) -> bool:
        return member in self._line

    def enter(self, member: M) -> None:
        """Join the line at its end; a second time does nothing."""
        if member not in self._line:
            self._fresh = self._fresh or not self._line
            self._line[member] = None
            self._books.pool_wait(len(self._line) - 1, len(self._line))

    def leave(self, member: M) -> bool:
        """Leave the line; return whether `member` was in it."""
        if member not in self._line:
            return False
        del self._line[member]
        self._books.pool_wait(len(self._line) + 1, len(self._line))
        return True

    def admit(self) -> M | None:
        """Take the next member, who may read once; None while nothing is free, or nobody waits."""
        if not self._line or not self._books.pool_free():
            return None
        if self._fresh:
            self._fresh = False
            # The same would be first each time that memory comes back, if the line began at its beginning.
            for member in list(self._line)[: self._random_below(len(self._line))]:
                self._line.move_to_end(member)
        member = next(iter(self._line))
        self.leave(member)
        return member
