"""The choice of an engine for each relay: the threads, or the event loop where they have no room.

Rule: a relay is never refused because an engine has no room: the event loop takes it, which is counted and logged.
The kernel's part of a relay's memory is bounded here, for both engines.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from proxy.relay.engine import Relay, RelayEngine, RelayOrder
from proxy.relay.memory.sockets import (
    NO_SOCKET_MEMORY,
    NOTHING_RECEIVED,
    ReceivedMemory,
    SocketMemory,
    SocketMemorySampler,
    SumBound,
    bound_unsent,
)
from proxy.relay.topic_slots import TopicSlots

if TYPE_CHECKING:
    from proxy.relay.memory.pool import PoolTaker
    from proxy.relay.memory.windows import ReceiveWindows
    from proxy.relay.native_engine import NativeEngine


class RelayEngines:
    """Joins each pair by the engine that it needs."""

    def __init__(
        self,
        fallback: RelayEngine,
        slots: TopicSlots,
        native: "NativeEngine | None" = None,
        *,
        unsent_bytes: int = 0,
        turns: "PoolTaker | None" = None,
        windows: "ReceiveWindows | None" = None,
    ) -> None:
        self._fallback = fallback
        self._unsent_bytes = unsent_bytes
        self.slots = slots
        self.native = native
        self._turns = turns
        self._windows = windows
        # The bound in sum for the kernel memory of sockets; None without a limit.
        self.bound: SumBound | None = None

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> Relay:
        """Return the relay of two connections."""
        for transport in (client, broker):
            bound_unsent(transport, self._unsent_bytes)
        if self._windows is not None:
            self._windows.begin(broker)
        native = self.native
        if native is not None and native.running:
            try:
                return native.join(client, broker, order)
            except OSError as error:
                native.refused(error)
        return self._fallback.join(client, broker, order)

    def close(self) -> None:
        """End the turns at the relay pool: all relays have ended."""
        if self._turns is not None:
            self._turns.close()

    def set_tight(self, tight: bool) -> None:
        """Record whether the kernel memory of all relayed sockets is short: windows are narrowed then."""
        if self._windows is not None:
            self._windows.tight = tight
        if self.native is not None:
            self.native.set_tight(tight)

    def sampler(self, relays: Callable[[], Iterable[Relay]]) -> SocketMemorySampler:
        """Return what adds the kernel memory of `relays` up each second, and keeps its bound."""
        return SocketMemorySampler(relays, self.socket_memory, self.bound)

    def received_memory(self) -> ReceivedMemory:
        """Return what sockets of the threads have received and nobody has read."""
        return NOTHING_RECEIVED if self.native is None else self.native.received_memory()

    def socket_memory(self) -> SocketMemory:
        """Return the kernel memory of the relays that the threads move."""
        return NO_SOCKET_MEMORY if self.native is None else self.native.socket_memory()
