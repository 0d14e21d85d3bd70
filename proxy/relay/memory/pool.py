"""The relay pool (KIP-72): one soft limit for all bytes that relays have read and their receivers have not taken.

Rule: what a receiver takes at once is never charged. While anything is free and nobody waits, a direction is read as
usual, so the pool is passed by at most one read of each thread, the event loop's included. Otherwise a direction is
read as far as its receiver's send queue has room, or waits here: those that wait are read once each, in the order of
their coming, from a random place of the line on (docs/adr/0041).

The books and the line are `limiter.soft_pool`. The threads of the native engine have the same books in the extension
(`native/src/relay/pool.rs`); where they run, theirs are the books of both, and the event loop has a line of its own.
"""

from collections.abc import Callable
from typing import Final, Protocol

from limiter.soft_pool import LocalBooks, PoolBooks, PoolRecord

_NOTHING: Final = PoolRecord(0, 0, 0, 0.0, 0, 0.0)


class PoolTaker(Protocol):
    """The turns of the event loop's relays, as an engine knows them (`pooled/turns.py`)."""

    def __len__(self) -> int:
        """Return how many wait."""

    def look(self) -> None:
        """Begin the next turn if there is memory."""

    def close(self) -> None:
        """End all turns."""


class RelayPool:
    """The pool of a proxy, for both engines: its numbers, all of them live, and the books that relays charge."""

    def __init__(self, limit_bytes: int, now: Callable[[], float]) -> None:
        self._limit = limit_bytes
        self._now = now
        self.books: PoolBooks = LocalBooks(limit_bytes, now)
        self._last = _NOTHING._replace(limit_bytes=limit_bytes)

    def use(self, books: PoolBooks) -> None:
        """Use the books of the threads; before the first relay begins."""
        self.books = books

    def close(self) -> None:
        """Forget the threads' books: the numbers stay as they are."""
        self._last = self._record
        self.books = LocalBooks(self._limit, self._now)
        # Relays of the event loop that end now release what they hold.
        self.books.pool_change(0, self._last.used_bytes)

    @property
    def _record(self) -> PoolRecord:
        found = self.books.pool()
        return self._last if found is None else PoolRecord._make(found)

    @property
    def limit_bytes(self) -> int:
        """The bytes that all relays may hold together, before overshoots."""
        return self._limit

    @property
    def used_bytes(self) -> int:
        """The bytes that are held now."""
        return self._record.used_bytes

    @property
    def muted(self) -> int:
        """The directions that wait for memory now."""
        return self._record.muted

    @property
    def muted_seconds(self) -> float:
        """The time that directions have waited, all added up."""
        return self._record.muted_millis / 1000

    @property
    def overshoots(self) -> int:
        """The reads that took the pool above its limit."""
        return self._record.overshoots

    @property
    def depleted_seconds(self) -> float:
        """The time in which nothing was free."""
        return self._record.depleted_millis / 1000
