"""The slots of one listener of the admin API, and who gives a slot up to a newcomer; no I/O, no clock.

Rules: a connection holds a slot from its accept to its end. A connection whose request is complete, which needs the
token at `adminApiAddress`, keeps its slot. The oldest other one of the host with most gives way to a newcomer of a host
with fewer (sites first, `core/key_members.py`). Where no host has more, the oldest of the newcomer's own site
gives way, or of any host if that site has none, once it has been silent for `SILENT_SECONDS`. A look at the slots is
bounded by their number.
"""

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from limiter.sites import site_of
from proxy.core.key_members import KeyMembers

# A client sends its request with its connection, so this is long for a whole request on one machine or in one network.
SILENT_SECONDS: Final = 0.25


class SlotHolder(Hashable, Protocol):
    """A connection that may hold a slot."""

    @property
    def host(self) -> str:
        """Return what the client shares with all its other connections."""

    @property
    def silent_since(self) -> float | None:
        """Return since when the proxy waits for the request; None before it reads."""


S = TypeVar("S", bound=SlotHolder)


class AdminSlots(Generic[S]):
    """The books of at most `limit` connections."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: set[S] = set()
        # Connections without a complete request, the oldest first.
        self._unproven: KeyMembers[str, S] = KeyMembers()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> tuple[S, ...]:
        """Return the connections that hold slots."""
        return tuple(self._held)

    @property
    def full(self) -> bool:
        """Return whether all slots are held."""
        return len(self._held) >= self._limit

    def take(self, connection: S) -> None:
        """Record that a connection holds a slot."""
        self._held.add(connection)
        self._unproven.add(connection.host, connection)

    def proven(self, connection: S) -> None:
        """Record that the request of a connection is complete and permitted."""
        self._unproven.remove(connection)

    def free(self, connection: S) -> None:
        """Record that a connection is over; a second call does nothing."""
        self._held.discard(connection)
        self._unproven.remove(connection)

    def victim_for(self, host: str, now: float) -> S | None:
        """Return the connection whose slot a newcomer of `host` takes; None if the newcomer has to go."""
        most = next(self._unproven.sizes.outweighing(host, 1), None)
        if most is not None:
            return next(iter(self._unproven.of(most)))
        anybody = not self._unproven.sizes[host]
        oldest = next((each for each in self._unproven if anybody or site_of(each.host) == site_of(host)), None)
        if oldest is None or oldest.silent_since is None or now - oldest.silent_since < SILENT_SECONDS:
            return None
        return oldest
