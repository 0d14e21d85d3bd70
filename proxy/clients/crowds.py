"""Connections that have proven nothing leave for newcomers when all places of connections are taken.

A crowd is what one address (an IPv6 /64 network) has of connections without a CONNECT, or in lookup mode; relays are
in `proxy/relay/relay_crowds.py`. Anybody can open as many connections as there are places, and say nothing. So the
largest crowd gives way to addresses that have far less. The crowds of an IPv6 site (/48) count as one first, and then
apart (`SiteSizes.outweighing`). Each step is O(1). No I/O and no clock here.
"""

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from proxy.core.addresses import host_network
from proxy.core.key_members import SiteSizes

# A client has this long for its CONNECT before it may have to leave: longer than a handshake over a slow line.
CONNECT_SECONDS: Final = 1.0
# A client in lookup mode may have to leave when it was found idle, and asked nothing for so long after an earlier look.
IDLE_SECONDS: Final = 10.0
# The idle leave for an address that has less than this part of their address's.
IDLE_FACTOR: Final = 2
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

    __slots__ = ("checked", "connected", "silent")

    def __init__(self) -> None:
        self.silent: dict[U, float] = {}
        # Clients whose credentials are being checked.
        self.checked: dict[U, float] = {}
        self.connected: dict[U, float] = {}

    def __len__(self) -> int:
        return len(self.silent) + len(self.checked) + len(self.connected)

    def leave(self, member: U) -> None:
        for kind in (self.silent, self.checked, self.connected):
            kind.pop(member, None)


class Crowds(Generic[U]):
    """All connections by network, and the largest crowd among them."""

    __slots__ = ("_crowds", "_networks", "_sizes", "_totals")

    def __init__(self) -> None:
        self._networks: dict[U, str] = {}
        self._crowds: dict[str, _Crowd[U]] = {}
        self._sizes: SiteSizes[str] = SiteSizes()
        # Proven connections, too: who has many of those is no newcomer.
        self._totals: SiteSizes[str] = SiteSizes()

    def arrived(self, address: str) -> None:
        """Count a connection of an address."""
        self._totals.grow(host_network(address))

    def left(self, address: str) -> None:
        """Take back what `arrived` has counted."""
        self._totals.shrink(host_network(address))

    def add(self, member: U, address: str, since: float) -> None:
        """Add a connection without a CONNECT, accepted at `since`."""
        network = self._networks[member] = host_network(address)
        self._crowds.setdefault(network, _Crowd()).silent[member] = since
        self._sizes.grow(network)

    def checked(self, member: U, now: float) -> None:
        """Record that a client's CONNECT has come, whose credentials are checked now; one unknown is ignored."""
        network = self._networks.get(member)
        if network is not None:
            crowd = self._crowds[network]
            crowd.leave(member)
            crowd.checked[member] = now

    def connected(self, member: U, now: float) -> None:
        """Record that a client's CONNECT was accepted; a member that is unknown is ignored."""
        network = self._networks.get(member)
        if network is not None:
            crowd = self._crowds[network]
            crowd.leave(member)
            crowd.connected[member] = now

    def remove(self, member: U) -> None:
        """Remove a connection that has proven itself or is gone; a member that is unknown is ignored."""
        network = self._networks.pop(member, None)
        if network is None:
            return
        crowd = self._crowds[network]
        crowd.leave(member)
        self._sizes.shrink(network)
        if not len(crowd):
            del self._crowds[network]

    @property
    def most(self) -> int:
        """Return how many connections the crowds of the largest site have."""
        return self._sizes.most

    def heavier(self, address: str | None, factor: int, sizes: SiteSizes[str] | None = None) -> Iterator[str]:
        """Yield the networks that give way to a newcomer of `address` by `sizes`, by default those of the crowds.

        Such a network has more than `factor` times what the newcomer then has of all connections (None: it has none).
        """
        network = None if address is None else host_network(address)
        return (self._sizes if sizes is None else sizes).outweighing(network, factor, self._totals)

    def gives_way(self, address: str | None) -> bool:
        """Return whether the largest crowd is far larger than all that `address` has (None: has nothing)."""
        return next(self.heavier(address, IDLE_FACTOR), None) is not None

    def youngest(self, address: str, factor: int) -> U | None:
        """Return who leaves of a heavier crowd: the youngest behind its CONNECT, or the one found at work last."""
        network = next(self.heavier(address, factor), None)
        return None if network is None else next(reversed(self._crowds[network].connected), None)

    def victim(self, address: str, now: float) -> U | None:
        """Return who leaves for a newcomer of `address`: of the largest crowd the oldest silent client, or an idle one.

        Without any, the client whose credentials have been checked for longest leaves: it can do nothing but wait.
        """
        looks = LOOKS
        for network in list(islice(self.heavier(address, IDLE_FACTOR), LOOKS)):
            crowd = self._crowds[network]
            for member, since in islice(crowd.silent.items(), 1):
                if now - since >= CONNECT_SECONDS:
                    return member
            for member, since in list(islice(crowd.connected.items(), looks)):
                if now - since < IDLE_SECONDS:
                    break
                looks -= 1
                if member.idle_since_asked():
                    return member
                del crowd.connected[member]
                crowd.connected[member] = now
            for member, since in islice(crowd.checked.items(), 1):
                if now - since >= CONNECT_SECONDS:
                    return member
            # The next newcomer begins with other networks of the site.
            self._sizes.defer(network)
        return None
