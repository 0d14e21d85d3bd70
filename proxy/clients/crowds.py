"""Connections that have proven nothing leave for newcomers when all places of connections are taken.

A crowd is what one address (an IPv6 /64 network) has of connections without a CONNECT, or in lookup mode; relays are
proven, because a broker has accepted them. Anybody can open as many connections as there are places, and say nothing.
So the largest crowd gives way to addresses that have far less. Each step is O(1). No I/O and no clock here.
"""

from collections import Counter
from collections.abc import Hashable
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from proxy.core.addresses import host_network

# A client has this long for its CONNECT before it may have to leave: longer than a handshake over a slow line.
CONNECT_SECONDS: Final = 1.0
# A client in lookup mode may have to leave when it was found idle, and asked nothing for so long after an earlier look.
IDLE_SECONDS: Final = 10.0
# How many connections one newcomer has looked at.
LOOKS: Final = 8


class Unproven(Hashable, Protocol):
    """A connection that is no relay."""

    def idle_since_asked(self) -> bool:
        """Return whether nothing is under way and nothing was asked for since the last call; False outside of lookup
        mode.
        """


U = TypeVar("U", bound=Unproven)


class _Crowd(Generic[U]):
    """The connections of one address that have proven nothing, with a time for each; the oldest first."""

    __slots__ = ("connected", "silent")

    def __init__(self) -> None:
        self.silent: dict[U, float] = {}
        self.connected: dict[U, float] = {}

    def __len__(self) -> int:
        return len(self.silent) + len(self.connected)


class Crowds(Generic[U]):
    """All connections by network, and the largest crowd among them."""

    __slots__ = ("_by_size", "_crowds", "_largest", "_networks", "_totals")

    def __init__(self) -> None:
        self._networks: dict[U, str] = {}
        self._crowds: dict[str, _Crowd[U]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0
        # Proven connections, too: who has many of those is no newcomer.
        self._totals: Counter[str] = Counter()

    def arrived(self, address: str) -> None:
        """Count a connection of an address."""
        self._totals[host_network(address)] += 1

    def left(self, address: str) -> None:
        """Take back what `arrived` has counted."""
        network = host_network(address)
        self._totals[network] -= 1
        if not self._totals[network]:
            del self._totals[network]

    def add(self, member: U, address: str, since: float) -> None:
        """Add a connection without a CONNECT, accepted at `since`."""
        network = self._networks[member] = host_network(address)
        crowd = self._crowds.setdefault(network, _Crowd())
        crowd.silent[member] = since
        self._resized(network, len(crowd) - 1, len(crowd))

    def connected(self, member: U, now: float) -> None:
        """Record that a client's CONNECT was accepted; a member that is unknown is ignored."""
        network = self._networks.get(member)
        if network is not None:
            crowd = self._crowds[network]
            crowd.silent.pop(member, None)
            crowd.connected[member] = now

    def remove(self, member: U) -> None:
        """Remove a connection that has proven itself or is gone; a member that is unknown is ignored."""
        network = self._networks.pop(member, None)
        if network is None:
            return
        crowd = self._crowds[network]
        if crowd.silent.pop(member, None) is None:
            crowd.connected.pop(member, None)
        self._resized(network, len(crowd) + 1, len(crowd))
        if not len(crowd):
            del self._crowds[network]

    def gives_way(self, address: str | None) -> bool:
        """Return whether the largest crowd is far larger than all that `address` has (None: has nothing)."""
        own = 0 if address is None else self._totals[host_network(address)]
        return self._largest > 2 * (own + 1)

    def victim(self, address: str, now: float) -> U | None:
        """Return who leaves for a newcomer of `address`: of the largest crowd the oldest silent or idle client."""
        if not self.gives_way(address):
            return None
        crowd = self._crowds[next(iter(self._by_size[self._largest]))]
        for member, since in islice(crowd.silent.items(), 1):
            if now - since >= CONNECT_SECONDS:
                return member
        for member, since in list(islice(crowd.connected.items(), LOOKS)):
            if now - since < IDLE_SECONDS:
                break
            if member.idle_since_asked():
                return member
            del crowd.connected[member]
            crowd.connected[member] = now
        return None

    def _resized(self, network: str, before: int, size: int) -> None:
        """Keep the networks by size; a crowd grows and shrinks by one."""
        if before:
            del self._by_size[before][network]
        if size:
            self._by_size.setdefault(size, {})[network] = None
        if before and not self._by_size[before]:
            del self._by_size[before]
        self._largest = max(self._largest, size) if size > before or self._largest in self._by_size else size
