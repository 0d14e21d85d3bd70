"""Share the connections to the web ports, so that a probe is always answered; no I/O, no clock.

Rules: a connection whose request is passed on to a server holds a place, from before the check of its credentials until
its answer; a WebSocket for as long as the WebSocket lasts. There are fewer places than connections. The rest is kept
for connections without a request and for those that ask for a page of the proxy's own: a newcomer replaces the longest
of these. Nobody who holds all places keeps a probe out, from whatever address.

When all places are held, a request of a host with fewer than others ends the youngest request of the host with most
that waits to be admitted, or its longest one if none waits. A request of the host with most gets none. The rule
holds for sites of IPv6 first, then for the networks of a site.
"""

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from proxy.core.key_members import KeyMembers

# Probes need one for a millisecond each; more, because a crowd may open connections at the same time.
_KEPT: Final = 32
_KEPT_PART: Final = 8


class WebConnection(Hashable, Protocol):
    """A connection to a web port."""

    @property
    def host(self) -> str:
        """Return the host of the client."""

    @property
    def idle(self) -> bool:
        """Return whether no request is in progress, and no answer is being written."""


C = TypeVar("C", bound=WebConnection)


def kept_of(connections: int) -> int:
    """Return how many of a number of connections are kept for those that pass nothing on."""
    return min(_KEPT, max(1, connections // _KEPT_PART), connections - 1)


class ConnectionPlaces(Generic[C]):
    """The books of at most `connections` connections."""

    def __init__(self, connections: int) -> None:
        self.limit = connections - kept_of(connections)
        # The longest first. A connection that asks for a page is here, too.
        self._resting: dict[C, None] = {}
        # Connections with a place by host; of these, the ones that are not admitted yet.
        self._passing: KeyMembers[str, C] = KeyMembers()
        self._waiting: KeyMembers[str, C] = KeyMembers()

    @property
    def held(self) -> int:
        """Return how many places are held."""
        return len(self._passing)

    def rests(self, connection: C) -> None:
        """Record that nothing is passed on for a connection, from now on."""
        self.forget(connection)
        self._resting[connection] = None

    def forget(self, connection: C) -> None:
        """Forget a connection that is lost; a second call does nothing."""
        self._resting.pop(connection, None)
        self.admitted(connection)
        self._passing.remove(connection)

    def take(self, connection: C) -> None:
        """Record that a request is to be passed on, whose connection holds a place from now on."""
        self.forget(connection)
        for books in (self._passing, self._waiting):
            books.add(connection.host, connection)

    def admitted(self, connection: C) -> None:
        """Record that the request no longer waits for its turn."""
        self._waiting.remove(connection)

    @property
    def full(self) -> bool:
        """Return whether all places are held."""
        return self.held >= self.limit

    def victim_for(self, host: str) -> C | None:
        """Return the connection whose place a request of `host` takes; None if its host has as many as any."""
        most = next(self._passing.sizes.outweighing(host, 1), None)
        if most is None:
            return None
        waiting = self._waiting.of(most)
        return next(reversed(waiting)) if waiting else next(iter(self._passing.of(most)))

    def longest_idle(self) -> C | None:
        """Return the connection that has been idle the longest."""
        return next((each for each in self._resting if each.idle), None)

    def longest_resting(self) -> C | None:
        """Return the connection that has been waiting for a page, or not taken it, the longest, if none is idle."""
        return next(iter(self._resting), None)
