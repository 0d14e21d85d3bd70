"""The relay engine on the event loop: always there, for every transport. Its relays are not logged."""

import asyncio
from typing import ClassVar

from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SharedReadBuffer
from proxy.relay.counters import RelayCounters
from proxy.relay.engine import Relay, RelayOrder
from proxy.relay.memory.windows import ReceiveWindow, ReceiveWindows
from proxy.relay.relay import AsyncioRelay
from proxy.relay.topic_slots import TopicSlots
from proxy.relay.watch_limits import WatchLimits
from proxy.relay.watch_relay import WatchedRelay

RelayClasses = tuple[type[AsyncioRelay], type[WatchedRelay]]


class AsyncioEngine:
    """Makes relays that the event loop serves; a new relay scans as the settings are when it begins.

    `classes`: those of a plain and of a watched relay.
    """

    classes: ClassVar[RelayClasses] = (AsyncioRelay, WatchedRelay)

    windows: ReceiveWindows | None = None

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
        counters: RelayCounters,
        watch: WatchLimits,
        slots: TopicSlots | None = None,
    ) -> None:
        self._loop = loop
        self._shared = shared
        self._hangup = hangup
        self._loop_budget = loop_budget
        self._counters = counters
        self._watch = watch
        self._slots = slots

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> Relay:
        """Return the relay of two connections of any kind."""
        sockets = (self._loop, self._shared, self._hangup, self._loop_budget)
        common = (*sockets, self._counters, order.read_timeout_seconds, order.on_end)
        watch, key = self._watch, order.key
        plain, watched = self.classes
        relay = watched(*common, watch=watch, key=key) if watch.enabled else plain(*common)
        if self._slots is not None and self._slots.enabled:
            self._count(relay, self._slots)
        if self.windows is not None:
            relay.client.window = ReceiveWindow(self.windows, narrow=False)
            relay.broker.window = ReceiveWindow(self.windows, narrow=True)
        relay.client_name = order.client
        relay.principal = order.principal
        relay.network = order.network
        if watch.recorder is not None and isinstance(relay, WatchedRelay):
            # Without an event log no relay keeps its client's origin in memory.
            relay.record_as(order.origin)
        return relay

    def _count(self, relay: AsyncioRelay, slots: TopicSlots) -> None:
        # Only proxies that count need this module.
        from proxy.relay.counted_relay import count

        count(relay, slots, self._loop, self._shared, self._hangup)
