"""Bound the WebSocket tunnels that are open: a new one is let in, and the least used of the busiest key ends.

Rule: a key (a principal, or an address without one) has no limit of its own: behind a balancer or NAT all clients may
have the same address. No I/O and no clock here.
"""

from collections.abc import Hashable
from typing import Protocol


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
        self._open: dict[OpenTunnel, None] = {}
        self._of_key: dict[Hashable, dict[OpenTunnel, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, tunnel: OpenTunnel) -> None:
        """Add a tunnel; if all places are taken, end the longest idle tunnel of the key with most."""
        while len(self._open) >= self.limit:
            most = max(map(len, self._of_key.values()))
            crowd = (each for tunnels in self._of_key.values() if len(tunnels) == most for each in tunnels)
            idle = min(crowd, key=lambda each: each.active_at)
            self.leave(idle)
            idle.give_way()
        self._open[tunnel] = None
        self._of_key.setdefault(tunnel.key, {})[tunnel] = None

    def leave(self, tunnel: OpenTunnel) -> None:
        """Forget a tunnel that ends; a second call does nothing."""
        if tunnel not in self._open:
            return
        del self._open[tunnel]
        of_key = self._of_key[tunnel.key]
        del of_key[tunnel]
        if not of_key:
            del self._of_key[tunnel.key]
