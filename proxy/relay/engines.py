"""The engine of a proxy's relays, and what is bounded for all of them: the kernel's part of their memory.

With the native extension its threads move every relay; without it (`--without-extension`) the event loop does.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from proxy.relay.engine import Relay, RelayOrder
from proxy.relay.memory.sockets import (
    NO_SOCKET_MEMORY,
    NOTHING_RECEIVED,
    ReceivedMemory,
    SocketMemory,
    SocketMemorySampler,
    bound_unsent,
)
from proxy.relay.threads import NO_THREADS, RelayThreads

if TYPE_CHECKING:
    from proxy.relay.memory.bound import SocketBound
    from proxy.relay.memory.pool import RelayPool
    from proxy.relay.native_engine import NativeEngine
    from proxy.relay.small_relay import SmallEngine
    from proxy.relay.topic_slots import TopicSlots


class RelayEngines:
    """Joins pairs; `native` and `slots` are None without the extension."""

    def __init__(
        self,
        engine: "NativeEngine | SmallEngine",
        native: "NativeEngine | None" = None,
        slots: "TopicSlots | None" = None,
        *,
        unsent_bytes: int = 0,
        narrow_windows: bool = False,
        threads: RelayThreads = NO_THREADS,
        pool: "RelayPool | None" = None,
    ) -> None:
        self._engine = engine
        self._unsent_bytes = unsent_bytes
        self.slots = slots
        self.native = native
        self._narrow_windows = narrow_windows
        self.threads = threads
        # The memory that relays share; None without a limit.
        self.pool = pool
        self._sampler: SocketMemorySampler | None = None
        # The bound in sum for the kernel memory of sockets; None without a limit.
        self.bound: SocketBound | None = None

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> Relay:
        """Return the relay of two connections."""
        for transport in (client, broker):
            bound_unsent(transport, self._unsent_bytes)
        if self._narrow_windows:
            # Only installations with the extension need this module.
            from proxy.relay.memory.windows import narrow

            narrow(broker)
        return self._engine.join(client, broker, order)

    def set_tight(self, tight: bool) -> None:
        """Record whether the kernel memory of all relayed sockets is short: windows are narrowed then."""
        if self.native is not None:
            self.native.set_tight(tight)

    def sampler(self, relays: Callable[[], Iterable[Relay]]) -> SocketMemorySampler:
        """Return what adds the kernel memory of `relays` up each second, and keeps its bound."""
        look = None if self.bound is None else self.bound.look
        self._sampler = SocketMemorySampler(relays, self.socket_memory, look)
        return self._sampler

    @property
    def weighed(self) -> SocketMemory:
        """The kernel memory of all relayed sockets, at the last look."""
        return NO_SOCKET_MEMORY if self._sampler is None else self._sampler.last

    def received_memory(self) -> ReceivedMemory:
        """Return what sockets of the threads have received and nobody has read."""
        return NOTHING_RECEIVED if self.native is None else self.native.received_memory()

    def socket_memory(self) -> SocketMemory:
        """Return the kernel memory of the relays that the threads move."""
        return NO_SOCKET_MEMORY if self.native is None else self.native.socket_memory()
