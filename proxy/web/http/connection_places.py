"""Share the connections to the web ports, so that a probe is always answered; no I/O, no clock.

A connection waits for a request (from its accept on), asks for a page of the proxy's own, or holds a place: its request
is passed on to a server, from before the check of its credentials until its answer; a WebSocket for as long as the
WebSocket lasts. There are fewer places than connections: some are kept for all others, which rest here.

When all places are held, a request of a host with fewer than others ends the youngest request of the host with most
that waits to be admitted, or its longest one if none waits. A request of the host with most gets none. The rule
holds for sites of IPv6 first, then for the networks of a site.

When there are as many connections as may be, a newcomer ends the first of these that there is:
- the longest at rest of the host with most at rest, if these are more than all that the newcomer's host then has
- a connection of a host that has more than `WORK_FACTOR` times as many in all, and more than are kept: a request if
  none rests
- the longest of the host with most at rest that waits for one request more; a connection that waits for its first, or
  is at a page, ends for no host that has more in all
- a connection of the newcomer's own site: a request if none rests

So a host that holds everything, by whatever it does, keeps no other out, nor a probe of its own. And a host that comes
again and again ends nothing that others with little have asked for, or are about to.
"""

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, Generic, Protocol, TypeVar

from proxy.core.key_members import KeyMembers, SiteSizes

# Probes need one for a millisecond each; more, because a crowd may open connections at the same time.
_KEPT: Final = 32
_KEPT_PART: Final = 8
# Requests in progress end for a host that has less than this part of their host's connections.
WORK_FACTOR: Final = 8
# How many hosts one newcomer has looked at.
LOOKS: Final = 8


class WebConnection(Hashable, Protocol):
    """A connection to a web port."""

    @property
    def host(self) -> str:
        """Return the host of the client, which stays the same."""

    @property
    def answered(self) -> bool:
        """Return whether there was a request before."""

    def cut(self) -> None:
        """End the connection at once."""


C = TypeVar("C", bound=WebConnection)


def kept_of(connections: int) -> int:
    """Return how many of a number of connections are kept for those that pass nothing on."""
    return min(_KEPT, max(1, connections // _KEPT_PART), connections - 1)


class ConnectionPlaces(Generic[C]):
    """The books of at most `connections` connections, each by host, and the longest first."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._kept = kept_of(connections)
        self.limit = connections - self._kept
        # Connections that wait for a request, and those at a page or at an answer that is not taken yet.
        self._quiet: KeyMembers[str, C] = KeyMembers()
        self._asking: KeyMembers[str, C] = KeyMembers()
        # Connections with a place; of these, the ones that are not admitted yet.
        self._passing: KeyMembers[str, C] = KeyMembers()
        self._waiting: KeyMembers[str, C] = KeyMembers()
        # How many wait or ask, and how many there are.
        self._resting: SiteSizes[str] = SiteSizes()
        self._all: SiteSizes[str] = SiteSizes()

    def __len__(self) -> int:
        return len(self._quiet) + len(self._asking) + len(self._passing)

    @property
    def held(self) -> int:
        """Return how many places are held."""
        return len(self._passing)

    @property
    def all_used(self) -> bool:
        """Return whether there are as many connections as may be."""
        return len(self) >= self._connections

    @property
    def full(self) -> bool:
        """Return whether all places are held."""
        return self.held >= self.limit

    def waits(self, connection: C) -> None:
        """Record that a connection waits for a request from now on, its first or one more."""
        self._rest(self._quiet, connection)

    def got_request(self, connection: C) -> None:
        """Record that a connection that waits has sent a request; any other connection stays what it is."""
        if connection in self._quiet:
            self._rest(self._asking, connection)

    def asks(self, connection: C) -> None:
        """Record that the request, or the answer, of a connection is passed on to nobody from now on."""
        self._rest(self._asking, connection)

    def forget(self, connection: C) -> None:
        """Forget a connection that is lost; a second call does nothing."""
        self.admitted(connection)
        if self._quiet.remove(connection) or self._asking.remove(connection):
            self._resting.shrink(connection.host)
        elif not self._passing.remove(connection):
            return
        self._all.shrink(connection.host)

    def take(self, connection: C) -> None:
        """Record that a request is to be passed on, whose connection holds a place from now on."""
        self._enter((self._passing, self._waiting), connection)

    def admitted(self, connection: C) -> None:
        """Record that the request no longer waits for its turn."""
        self._waiting.remove(connection)

    def victim_for(self, host: str) -> C | None:
        """Return the connection whose place a request of `host` takes; None if its host has as many as any."""
        most = next(self._passing.sizes.outweighing(host, 1), None)
        return None if most is None else self._request_of(most)

    def victim_for_newcomer(self, host: str) -> C | None:
        """Return the connection that ends for a newcomer of `host`; None if the newcomer has to go."""
        return next((each for each in self._victims(host) if each is not None), None)

    def _victims(self, host: str) -> Iterator[C | None]:
        everything, own = self._all, self._all[host]
        for crowd in self._resting.outweighing(host, 1, everything):
            yield self._resting_of(crowd)
        for crowd in everything.outweighing(host, WORK_FACTOR):
            if everything[crowd] > self._kept:
                yield self._any_of(crowd)
        most = list(islice(self._resting.largest(), LOOKS))
        for longest in (each for crowd in most for each in islice(self._quiet.of(crowd), 1)):
            if longest.answered or own <= self._kept or everything[longest.host] >= own:
                yield longest
        for longest in (each for crowd in most for each in islice(self._asking.of(crowd), 1)):
            if everything[longest.host] >= own:
                yield longest
        inside = everything.within(host)
        for key in (host,) if inside is None else inside.largest():
            yield self._any_of(key)

    def _any_of(self, key: str) -> C | None:
        resting = self._resting_of(key)
        return self._request_of(key) if resting is None else resting

    def _resting_of(self, key: str) -> C | None:
        return next(chain(self._quiet.of(key), self._asking.of(key)), None)

    def _request_of(self, key: str) -> C | None:
        return next(chain(reversed(self._waiting.of(key)), self._passing.of(key)), None)

    def _rest(self, book: KeyMembers[str, C], connection: C) -> None:
        self._enter((book,), connection)
        self._resting.grow(connection.host)

    def _enter(self, books: Iterable[KeyMembers[str, C]], connection: C) -> None:
        self.forget(connection)
        for book in books:
            book.add(connection.host, connection)
        self._all.grow(connection.host)
