"""The relay engine on the event loop whose relays share a pool (docs/adr/0041)."""

import asyncio
from typing import ClassVar

from proxy.relay.asyncio_engine import AsyncioEngine, RelayClasses
from proxy.relay.engine import Relay, RelayOrder
from proxy.relay.pooled.relays import PooledRelay, PooledWatchedRelay, PoolRelayMixin
from proxy.relay.pooled.turns import PoolTurns
from proxy.relay.relay import AsyncioRelay
from proxy.relay.topic_slots import TopicSlots


class PooledEngine(AsyncioEngine):
    """Makes relays that the event loop serves, and that share the pool of `turns`."""

    classes: ClassVar[RelayClasses] = (PooledRelay, PooledWatchedRelay)
    turns: PoolTurns

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> Relay:
        """Return the relay of two connections of any kind."""
        relay = super().join(client, broker, order)
        assert isinstance(relay, PoolRelayMixin)
        relay.share(self.turns)
        return relay

    def _count(self, relay: AsyncioRelay, slots: TopicSlots) -> None:
        # Only proxies that count need these modules.
        from proxy.relay.counted_relay import count
        from proxy.relay.pooled.counted import PooledCountedEndpoint

        count(relay, slots, self._loop, self._shared, self._hangup, PooledCountedEndpoint)
