"""The relay pool (KIP-72): one soft limit for all bytes that relays have read and their receivers have not taken.

Its books and its turns are the threads' (`native/src/relay/pool.rs`, docs/adr/0041); here are its numbers.
"""

from collections.abc import Callable
from typing import Final

from limiter.soft_pool import PoolRecord

Read = Callable[[], tuple[int, int, int, float, int, float] | None]

_NOTHING: Final = PoolRecord(0, 0, 0, 0.0, 0, 0.0)


class RelayPool:
    """The pool of a proxy: its numbers, all of them live while the threads run."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._read: Read | None = None
        self._last = _NOTHING

    def use(self, read: Read) -> None:
        """Show what `read` returns from now on: the numbers of the threads."""
        self._read = read

    def close(self) -> None:
        """Forget the threads: the numbers stay as they are."""
        self._last = self._record
        self._read = None

    @property
    def _record(self) -> PoolRecord:
        found = None if self._read is None else self._read()
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
