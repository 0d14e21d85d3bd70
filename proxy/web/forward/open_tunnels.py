"""Bound the WebSocket tunnels that are open: a new one is let in, and the least used of the busiest key ends.

Rule: a key (a principal, or an address without one) has no limit of its own: behind a balancer or NAT all clients may
have the same address. No I/O and no clock here.
"""

from collections.abc import Hashable
from itertools import chain
from typing import Protocol

from proxy.core.key_members import KeyMembers


class OpenTunnel(Hashable, Protocol):
    """A tunnel that is open."""

    @property
    def key(self) -> Hashable:
        """Return the principal or the host of the client."""

    @property
    def active_at(self) -> float:
        """Return when a byte has last passed."""

    def give_way(self) -> None:
        """End the tunnel soon."""


class OpenTunnels:
    """The open tunnels, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: KeyMembers[Hashable, OpenTunnel] = KeyMembers()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, tunnel: OpenTunnel) -> None:
        """Add a tunnel; if all places are taken, end the longest idle tunnel of the key with most."""
        while len(self._open) >= self.limit:
            idle = min(chain.from_iterable(self._open.largest()), key=lambda each: each.active_at)
            self.leave(idle)
            idle.give_way()
        self._open.add(tunnel.key, tunnel)

    def leave(self, tunnel: OpenTunnel) -> None:
        """Forget a tunnel that ends; a second call does nothing."""
        self._open.remove(tunnel)
