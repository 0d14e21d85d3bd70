"""Endpoints of clients that share a relay pool and whose messages are counted by topic (ADR 41, ADR 42)."""

from collections.abc import Mapping
from typing import Final

from proxy.relay.counted_relay import CountedEndpoint, TappedCountedEndpoint
from proxy.relay.pooled.relays import PoolMixin


class PooledCountedEndpoint(PoolMixin, CountedEndpoint):
    """A client's endpoint with a meter."""


class PooledTappedCountedEndpoint(PoolMixin, TappedCountedEndpoint):
    """A client's endpoint with a meter and a tap for `proxyLogLevel`."""


KINDS: Final[Mapping[bool, type[CountedEndpoint]]] = {False: PooledCountedEndpoint, True: PooledTappedCountedEndpoint}
