"""Places for TLS handshakes: who holds one, and who must give a place back first.

Rule: there is no limit for an address, because behind a balancer or NAT all clients may have the same one. No I/O and
no clock here; `arrivals.py` calls these.
"""

from collections.abc import Hashable, Iterator
from itertools import chain, islice
from typing import Final, Generic, TypeVar

from limiter.sites import site_of
from proxy.core.key_members import KeyMembers

# A handshake keeps a place for this long, which is longer than a handshake over a slow line.
PLACE_SECONDS: Final = 1.0
# The least time, enough for a handshake over most lines: while very many others wait, and for an address that holds
# more places than the address of the next client.
LEAST_SECONDS: Final = 0.4


A = TypeVar("A", bound=Hashable)


class Places(Generic[A]):
    """The `limit` places of handshakes under way, and since when each is held."""

    __slots__ = ("_holders", "_since", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._since: dict[A, float] = {}
        self._holders: KeyMembers[Hashable, A] = KeyMembers()

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[A]:
        return iter(self._since)

    @property
    def full(self) -> bool:
        """Return whether all places are held."""
        return len(self._since) >= self.limit

    def take(self, holder: A, key: Hashable, now: float) -> None:
        """Record that `holder`, a client of the network `key`, has a place from `now` on."""
        self._since[holder] = now
        self._holders.add(key, holder)

    def leave(self, holder: A) -> bool:
        """Take the place back; return False if there is none."""
        self._since.pop(holder, None)
        return self._holders.remove(holder)

    def crowd(self, most: int) -> tuple[list[A], int]:
        """Return the `most` oldest holders of the keys that hold most places, and how many their site holds.

        A place must be held.
        """
        of, since = self._holders.of, self._since
        keys = list(self._holders.sizes.largest())
        site = site_of(min(keys, key=lambda key: since[next(iter(of(key)))]))
        crowds = [islice(of(key), most) for key in keys if site_of(key) == site]
        holders = sorted(chain.from_iterable(crowds), key=since.__getitem__)
        return holders[:most], self._holders.sizes.most

    def due(self, holder: A, crowd: int, newcomer: Hashable, waiting: int) -> float:
        """Return when `holder`, of a site with `crowd` places, must leave for a client of the key `newcomer`.

        The more clients wait, the sooner.
        """
        if crowd > self._holders.sizes[newcomer] + 1:
            seconds = LEAST_SECONDS
        else:
            seconds = max(LEAST_SECONDS, PLACE_SECONDS * self.limit / (self.limit + waiting))
        return self._since[holder] + seconds
