"""Lists that clients owe: they had shown that they read, gave their share back for that, and then stand still.

Rule: while others wait for direct memory, such lists hold at most a part of direct memory (a quarter, by default).
Above that part clients are closed, the longest standing first, once they have stood for `STANDING_SECONDS`. Clients
that have shown nothing are never closed by this rule: their lists stay in a share, which is bounded by itself.
"""

from typing import Final, Generic, Protocol, TypeVar

# Longer than a pause of a client's garbage collector, and than a window's reopening in large steps.
STANDING_SECONDS: Final = 2.0


class OwingWriter(Protocol):
    """A client's output (`proxy.net.output.Output`)."""

    @property
    def owed(self) -> tuple[int, int] | None:
        """Return the list in progress (a number that names the list) and what memory it holds, if in no share."""


W = TypeVar("W", bound=OwingWriter)


class OwedBound(Protocol):
    """The bound on what is owed (`proxy.requests.reader_shares.ReaderShares`)."""

    @property
    def most_owed(self) -> int | None:
        """Return how many bytes may be owed while others wait; None: no bound."""


class OwedLists(Generic[W]):
    """The lists that are owed in one sweep; a list that several clients share counts once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._writers: list[tuple[float, int, W]] = []

    def note(self, writer: W, since: float) -> None:
        """Count the list of a client that has stood still `since` then."""
        if (owed := writer.owed) is not None:
            body, size = owed
            self._sizes[body] = max(size, self._sizes.get(body, 0))
            self._writers.append((since, body, writer))

    def above(self, most: int, now: float) -> list[W]:
        """Return the clients to close, so that at most `most` bytes are owed."""
        excess = sum(self._sizes.values()) - most
        found: list[W] = []
        closed: set[int] = set()
        for since, body, writer in sorted(self._writers, key=lambda each: each[0]):
            if (excess <= 0 and body not in closed) or now - since < STANDING_SECONDS:
                continue
            found.append(writer)
            if body not in closed:
                closed.add(body)
                excess -= self._sizes[body]
        return found
