"""Endpoints of clients that share a relay pool and whose messages are counted by topic (ADR 41, ADR 42)."""

from proxy.relay.counted_relay import CountedEndpoint
from proxy.relay.pooled.relays import PoolMixin


class PooledCountedEndpoint(PoolMixin, CountedEndpoint):
    """A client's endpoint with a meter."""
