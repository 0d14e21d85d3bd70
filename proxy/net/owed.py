"""Lists that clients owe: they had shown that they read, gave their share back for that, and then stand still.

Rules:
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
from typing import Final, Generic, Protocol, TypeVar

# Longer than a pause of a client's garbage collector, and than a window's reopening in large steps.
STANDING_SECONDS: Final = 2.0
W = TypeVar("W")


class OwedBound(Protocol):
    """The bounds on what clients that stand may hold (`proxy.requests.topic_lists.unproven.UnprovenReaders`)."""

    @property
    def most_owed(self) -> int | None:
        """Return how many bytes may be owed while others wait for direct memory; None: no bound."""

    @property
    def most_held_up(self) -> int | None:
        """Return how much heap memory lists behind owed lists may hold while others wait for it; None: no bound."""


class OwedLists(Generic[W]):
    """The lists in one memory that wait for clients which stand; a list that several clients share counts once."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, int] = {}
        self._writers: list[tuple[float, list[Hashable], W]] = []

    def note(self, writer: W, since: float, lists: Iterable[tuple[Hashable, int]]) -> None:
        """Count the `lists` (names and sizes) of a client that has stood still `since` then."""
        names = list[Hashable]()
        for name, size in lists:
            self._sizes[name] = max(size, self._sizes.get(name, 0))
            names.append(name)
        if names:
            self._writers.append((since, names, writer))

    def above(self, most: int, now: float) -> list[W]:
        """Return the clients to close, so that at most `most` bytes wait for those that stand."""
        excess = sum(self._sizes.values()) - most
        found: list[W] = []
        closed: set[Hashable] = set()
        for since, names, writer in sorted(self._writers, key=lambda each: each[0]):
            if (excess <= 0 and closed.isdisjoint(names)) or now - since < STANDING_SECONDS:
                continue
            found.append(writer)
            excess -= sum(self._sizes[name] for name in names if name not in closed)
            closed.update(names)
        return found
