"""Relays leave for newcomers when all places of connections are taken: a broker that accepts everybody proves nothing.

A client may name a listener of its own, so relays to hosts that clients make up are strangers; the others lead to
known brokers. A relay is quiet while nothing but keep-alives passes. Each step is O(1). No I/O and no clock here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core.key_members import KeyMembers, SiteSizes
from proxy.relay.engine import Relay

# A relay may have to leave as quiet when it has passed little for so long.
QUIET_SECONDS: Final = 10.0
# Keep-alives are 13 bytes: PING and PONG of both sides, each 10 s, are 5 bytes a second.
QUIET_BYTES: Final = 64
QUIET_BYTES_PER_SECOND: Final = 8
# Bytes may come at the end of a long silence, so more than a minute of keep-alives is traffic.
QUIET_MOST_SECONDS: Final = 60.0
# How many relays one newcomer has looked at; and how many that are to a known broker by now, each once in its life.
LOOKS: Final = 32
MOST_MOVES: Final = 512


# Yields the networks that give way to a newcomer by how many relays they have; there may be none.
Heavier = Callable[[SiteSizes[str]], Iterator[str]]


@dataclass(slots=True)
class _Book:
    """A relay's network, whether its target is known, and what the relay had passed at the last look."""

    network: str
    is_known: Callable[[], bool]
    since: float
    moved_bytes: int = 0

    def quiet(self, moved_bytes: int, now: float) -> bool:
        """Return whether nothing but keep-alives has passed since the last look."""
        seconds = min(QUIET_MOST_SECONDS, now - self.since)
        return moved_bytes - self.moved_bytes <= QUIET_BYTES + QUIET_BYTES_PER_SECOND * seconds


class RelayCrowds:
    """All relays by network: those to strangers apart from those to known brokers."""

    __slots__ = ("_books", "_known", "_strangers")

    def __init__(self) -> None:
        self._books: dict[Relay, _Book] = {}
        # The relays of each network: those first that were not found at work for longest.
        self._strangers: KeyMembers[str, Relay] = KeyMembers()
        self._known: KeyMembers[str, Relay] = KeyMembers()

    @property
    def most_strangers(self) -> int:
        """Return how many relays to strangers the site with most of those has."""
        return self._strangers.sizes.most

    @property
    def most_known(self) -> int:
        """Return how many relays to known brokers the site with most of those has."""
        return self._known.sizes.most

    def add(self, relay: Relay, network: str, is_known: Callable[[], bool], now: float) -> None:
        """Add a relay; `is_known` tells whether its target is known: a lookup may name the target later."""
        self._books[relay] = _Book(network, is_known, now)
        (self._known if is_known() else self._strangers).add(network, relay)

    def remove(self, relay: Relay) -> None:
        """Remove a relay; one that is not there is ignored."""
        if self._books.pop(relay, None) is not None and not self._strangers.remove(relay):
            self._known.remove(relay)

    def network_of(self, relay: Relay) -> str | None:
        """Return the network of a relay's client; None for a relay that is not there."""
        book = self._books.get(relay)
        return None if book is None else book.network

    def is_stranger(self, relay: Relay) -> bool:
        """Return whether the target of a relay was a stranger when somebody last asked."""
        return relay in self._strangers

    def still_stranger(self, relay: Relay) -> bool:
        """Ask whether the target of a relay is a stranger now; some microseconds, so of few relays only."""
        return relay in self._strangers and not self._moved_to_known(relay)

    def quiet_stranger(self, heavier: Heavier, now: float) -> Relay | None:
        """Return a quiet relay to a stranger, of a network that gives way."""
        return self._quiet(self._strangers, heavier, now)

    def busy_stranger(self, heavier: Heavier) -> Relay | None:
        """Return a relay to a stranger, of a network that gives way: the youngest, or found at work last."""
        for _ in range(MOST_MOVES):
            relay = self._youngest(self._strangers, heavier)
            if relay is None or not self._moved_to_known(relay):
                return relay
        return None

    def known(self, heavier: Heavier, now: float) -> Relay | None:
        """Return a relay to a known broker, of a network that gives way: a quiet one, else as above."""
        return self._quiet(self._known, heavier, now) or self._youngest(self._known, heavier)

    def _youngest(self, relays: KeyMembers[str, Relay], heavier: Heavier) -> Relay | None:
        network = next(heavier(relays.sizes), None)
        return None if network is None else next(reversed(relays.of(network)))

    def _quiet(self, relays: KeyMembers[str, Relay], heavier: Heavier, now: float) -> Relay | None:
        looks = moves = 0
        while looks < LOOKS and moves < MOST_MOVES:
            network = next(heavier(relays.sizes), None)
            if network is None:
                return None
            relay = next(iter(relays.of(network)))
            book = self._books[relay]
            if now - book.since < QUIET_SECONDS:
                # Other networks of the site may have relays that are quiet.
                relays.sizes.defer(network)
                looks += 1
                continue
            if relays is self._strangers and self._moved_to_known(relay):
                moves += 1
                continue
            moved = sum(relay.snapshot().moved)
            if book.quiet(moved, now):
                return relay
            book.since, book.moved_bytes = now, moved
            relays.remove(relay)
            relays.add(book.network, relay)
            looks += 1
        return None

    def _moved_to_known(self, relay: Relay) -> bool:
        """Return whether the target of a relay has become known, and count the relay so from now on."""
        book = self._books[relay]
        if not book.is_known():
            return False
        self._strangers.remove(relay)
        self._known.add(book.network, relay)
        return True
