"""Lists that clients owe: they had shown that they read, gave their share back for that, and then stand or are slow.

Rules:
- Slow is a client that moves, and takes less than a quick reader does (`proxy.net.write_watch.WriteProgress.pace`).
  The lists of slow clients count with those of clients that stand; they are closed after those, the slowest first. A
  slow client that keeps to the least rate is closed only while quick clients come: where all are slow, those that wait
  are no better.
- While others wait for direct memory, such lists hold at most a part of direct memory (a quarter, by default). Above
  that part clients are closed, the longest standing first, once they have stood for `STANDING_SECONDS`.
- The next list of such a client waits in heap memory. While others wait for heap memory, such lists hold a quarter of
  that, and clients are closed in the same way. A list in progress that can go to disk holds up no other for long: its
  client is not closed for heap memory. A list in progress that several clients share may be in a share for one of them:
  lists of the others that were asked for without a turn, for their clients read then, count none the less.
- Clients that have shown nothing are never closed by these rules: their lists stay in a share, which is bounded by
  itself, and their questions have a turn.
"""

from collections.abc import Hashable, Iterable
from operator import itemgetter
from typing import Final, Generic, TypeVar

# Longer than a pause of a client's garbage collector, and than a window's reopening in large steps.
STANDING_SECONDS: Final = 2.0
W = TypeVar("W")


class OwedLists(Generic[W]):
    """The lists in one memory that wait for clients which stand; a list that several clients share counts once."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, int] = {}
        self._standing: list[tuple[float, list[Hashable], W]] = []
        self._slow: list[tuple[float, list[Hashable], W]] = []

    def note(self, writer: W, since: float, lists: Iterable[tuple[Hashable, int]], pace: float | None = None) -> None:
        """Count the `lists` (names and sizes) of a client that has stood still `since` then, or is slow at a `pace`."""
        names = list[Hashable]()
        for name, size in lists:
            self._sizes[name] = max(size, self._sizes.get(name, 0))
            names.append(name)
        if names and pace is None:
            self._standing.append((since, names, writer))
        elif names and pace is not None:
            self._slow.append((pace, names, writer))

    @property
    def total(self) -> int:
        """Return the bytes of all these lists."""
        return sum(self._sizes.values())

    def above(self, most: int, now: float, quicker: float) -> list[W]:
        """Return the clients to close, so that at most `most` bytes wait for those that stand or are slow.

        Slow clients with a pace of `quicker` or more stay.
        """
        excess = self.total - most
        found: list[W] = []
        closed: set[Hashable] = set()
        standing = (each for each in self._standing if now - each[0] >= STANDING_SECONDS)
        slow = (each for each in self._slow if each[0] < quicker)
        by_first = itemgetter(0)
        for _, names, writer in (*sorted(standing, key=by_first), *sorted(slow, key=by_first)):
            if excess <= 0 and closed.isdisjoint(names):
                continue
            found.append(writer)
            excess -= sum(self._sizes[name] for name in names if name not in closed)
            closed.update(names)
        return found
