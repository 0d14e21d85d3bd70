"""Places for TLS handshakes: who waits for a place, who holds one, and who must give a place back first.

Rule: addresses take turns, and there is no limit for an address: behind a balancer or NAT all clients may have the same
one. No I/O and no clock here; `arrivals.py` calls these.
"""

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from proxy.core.addresses import host_network

# A handshake keeps a place for this long, which is longer than a handshake over a slow line.
PLACE_SECONDS: Final = 1.0
# The least time, enough for a handshake over most lines: while very many others wait, and for an address that holds
# more places than the address of the next client.
LEAST_SECONDS: Final = 0.4

T = TypeVar("T", bound=Hashable)


class Addressed(Hashable, Protocol):
    """A client with an address."""

    @property
    def client_address(self) -> str:
        """The client's address, without a port."""


A = TypeVar("A", bound=Addressed)


class TurnQueue(Generic[T]):
    """A queue in which keys take turns; the members of a key are served in the order of their arrival."""

    __slots__ = ("_key_of", "_lines")

    def __init__(self) -> None:
        self._key_of: dict[T, Hashable] = {}
        # The first key has the next turn.
        self._lines: dict[Hashable, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._key_of)

    def __contains__(self, member: T) -> bool:
        return member in self._key_of

    @property
    def keys(self) -> int:
        """Return how many keys wait."""
        return len(self._lines)

    @property
    def next_key(self) -> Hashable:
        """Return the key whose turn is next; the queue must not be empty."""
        return next(iter(self._lines))

    def skip(self) -> None:
        """Move the next key to the end of the queue."""
        key = self.next_key
        self._lines[key] = self._lines.pop(key)

    def push(self, key: Hashable, member: T) -> None:
        """Append a member to the line of its key."""
        self._key_of[member] = key
        self._lines.setdefault(key, {})[member] = None

    def pop(self) -> T:
        """Remove and return the first member of the next key, and move that key to the end of the queue."""
        key = self.next_key
        line = self._lines.pop(key)
        member = next(iter(line))
        del line[member], self._key_of[member]
        if line:
            self._lines[key] = line
        return member

    def remove(self, member: T) -> None:
        """Remove a member; one that is not in the queue is ignored."""
        if member in self._key_of:
            key = self._key_of.pop(member)
            line = self._lines[key]
            del line[member]
            if not line:
                del self._lines[key]


class Places(Generic[A]):
    """The `limit` places of handshakes under way, and since when each is held."""

    __slots__ = ("_holders", "_since", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._since: dict[A, float] = {}
        # The oldest first.
        self._holders: dict[Hashable, dict[A, None]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[A]:
        return iter(self._since)

    @property
    def full(self) -> bool:
        """Return whether all places are held."""
        return len(self._since) >= self.limit

    def take(self, holder: A, now: float) -> None:
        """Record that `holder` has a place from `now` on."""
        self._since[holder] = now
        self._holders.setdefault(host_network(holder.client_address), {})[holder] = None

    def leave(self, holder: A) -> bool:
        """Take the place back; return False if there is none."""
        if self._since.pop(holder, None) is None:
            return False
        key = host_network(holder.client_address)
        holders = self._holders[key]
        del holders[holder]
        if not holders:
            del self._holders[key]
        return True

    def crowd(self, most: int) -> tuple[list[A], int]:
        """Return the `most` oldest holders of the key that holds most places, and how many it holds.

        A place must be held.
        """
        crowd = max(self._holders.values(), key=lambda holders: (len(holders), -self._since[next(iter(holders))]))
        return list(islice(crowd, most)), len(crowd)

    def due(self, holder: A, crowd: int, newcomer: Hashable, waiting: int) -> float:
        """Return when `holder`, of a key with `crowd` places, must leave for a client of the key `newcomer`.

        The more clients wait, the sooner.
        """
        if crowd > len(self._holders.get(newcomer, ())) + 1:
            seconds = LEAST_SECONDS
        else:
            seconds = max(LEAST_SECONDS, PLACE_SECONDS * self.limit / (self.limit + waiting))
        return self._since[holder] + seconds
