"""The engine of a proxy's relays, and what is bounded for all of them: the kernel's part of their memory.

With the native extension its threads move every relay; without it (`--without-extension`) the event loop does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from proxy.relay.engine import Relay, RelayOrder
from proxy.relay.memory.sockets import (
    NO_SOCKET_MEMORY,
    NOTHING_RECEIVED,
    ReceivedMemory,
    SocketMemory,
    bound_unsent,
)
from proxy.relay.threads import NO_THREADS, RelayThreads

if TYPE_CHECKING:
    from limiter.soft_pool import PoolRecord
    from proxy.relay.native_engine import NativeEngine
    from proxy.relay.small_relay import SmallEngine
    from proxy.relay.socket_bound import SocketBound
    from proxy.relay.topic_slots import TopicSlots

SOCKETS_A_STEP: Final = 250


class RelayEngines:
    """Joins pairs; `native` is the engine if it is that of the extension.

    `bound`: the bound in sum for the kernel memory of sockets; None without a limit.
    """

    def __init__(
        self,
        engine: "NativeEngine | SmallEngine",
        native: "NativeEngine | None" = None,
        bound: "SocketBound | None" = None,
        *,
        unsent_bytes: int = 0,
        narrow_windows: bool = False,
        threads: RelayThreads = NO_THREADS,
    ) -> None:
        self._engine = engine
        self._unsent_bytes = unsent_bytes
        self.native = native
        self.bound = bound
        self._narrow_windows = narrow_windows
        self.threads = threads
        # The kernel memory of all relayed sockets, at the last look.
        self.weighed = NO_SOCKET_MEMORY

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> Relay:
        """Return the relay of two connections."""
        for transport in (client, broker):
            bound_unsent(transport, self._unsent_bytes)
        if self._narrow_windows:
            # Only installations with the extension need this module.
            from proxy.relay.memory.windows import narrow

            narrow(broker)
        return self._engine.join(client, broker, order)

    @property
    def slots(self) -> "TopicSlots | None":
        """The slots in which messages are counted by topic; None without the extension."""
        return None if self.native is None else self.native.slots

    @property
    def stuck(self) -> str | None:
        """Return which thread stands still, in words; None if all work."""
        return None if self.native is None else self.native.stuck

    async def tick(self, now: float) -> None:
        """Look at the threads, and at frames that they hold; called once a second."""
        if self.native is not None:
            self.native.tick()
            await self.native.look_at_frames()

    async def weigh(self, relays: Iterable[Relay], pause: Callable[[], Awaitable[None]]) -> SocketMemory:
        """Add the kernel memory of all relays up, and keep its bound; called once a second.

        `SOCKETS_A_STEP` are looked at at a time, with a `pause` between.
        """
        brokers, clients = NO_SOCKET_MEMORY if self.native is None else self.native.socket_memory()
        for number, relay in enumerate(list(relays), 1):
            found = relay.socket_bytes()
            brokers += found.towards_brokers
            clients += found.towards_clients
            if not number % (SOCKETS_A_STEP // 2):
                await pause()
        self.weighed = SocketMemory(brokers, clients)
        if self.bound is not None:
            await self.bound.look(self.weighed, pause)
        return self.weighed

    @property
    def pool(self) -> "PoolRecord | None":
        """The memory that relays share; None without a limit."""
        return None if self.native is None else self.native.pool

    def received_memory(self) -> ReceivedMemory:
        """Return what sockets of the threads have received and nobody has read."""
        return NOTHING_RECEIVED if self.native is None else self.native.received_memory()
