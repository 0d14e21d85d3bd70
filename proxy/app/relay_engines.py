"""Build the relay engines of a proxy: the event loop's, and the native one if it was chosen."""

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.app.metrics.counters import Counters
from proxy.app.sockets import Sockets
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.core.native import NativeExtension
from proxy.relay.asyncio_engine import AsyncioEngine
from proxy.relay.engine import DRIPPED_THROUGH
from proxy.relay.engines import RelayEngines
from proxy.relay.memory.bound import RelayOrigins, SocketBound
from proxy.relay.memory.windows import ReceiveWindows
from proxy.relay.relay_log import RelayLog
from proxy.relay.topic_slots import TopicSlots
from proxy.relay.watch_limits import WatchLimits


def make_engines(
    config: Config,
    extension: NativeExtension,
    loop: asyncio.AbstractEventLoop,
    sockets: Sockets,
    counters: Counters,
    watch: WatchLimits,
    relay_log: RelayLog,
    log: Logger,
    on_died: Callable[[int], None],
    origins: RelayOrigins,
) -> RelayEngines:
    """Return the engines that were chosen (`counters.relay.engine`); the threads are not started yet."""
    choice, unsent = counters.relay.engine, config.relay_unsent_bytes
    native_books = extension.find("SlotBooks") if choice.name == "native" else None
    slots = TopicSlots(loop.time, loop.call_soon, None if native_books is None else native_books())
    shared = (loop, sockets.shared, sockets.hangup, sockets.loop_budget, counters.relay, watch, slots)
    on_loop, turns = AsyncioEngine(*shared), None
    if config.relay_pool_bytes:
        # Only installations with a pool need these modules.
        from proxy.relay.memory.pool import RelayPool
        from proxy.relay.pooled.engine import PooledEngine
        from proxy.relay.pooled.turns import PoolTurns

        pool = counters.relay.pool = RelayPool(config.relay_pool_bytes, loop.time)
        on_loop = pooled = PooledEngine(*shared)
        turns = pooled.turns = PoolTurns(loop, pool, unsent, counters.relay)
    windows = None
    if config.relay_socket_bytes:
        windows = on_loop.windows = ReceiveWindows(config.relay_receive_buffer_bytes)
    engines = RelayEngines(on_loop, slots, unsent_bytes=unsent, turns=turns, windows=windows)
    if choice.name != "native":
        return _bound(engines, config, counters, origins, log, loop)

    # Only installations with the extension need these modules.
    from proxy.relay.native_api import NativePairs, linger_millis
    from proxy.relay.native_engine import NativeEngine

    def make_pairs() -> NativePairs:
        assert extension.module is not None
        limits = (choice.threads, config.relay_buffer_bytes, linger_millis(), config.relay_pool_bytes, unsent)
        wide_window = windows.wide_bytes if windows is not None and windows.may_narrow else None
        return cast(NativePairs, extension.module.RelayEngine(*limits, slots.books, wide_window))

    engines.native = NativeEngine(
        loop,
        make_pairs,
        sockets.loop_budget,
        counters.relay,
        watch,
        sockets.hangup.ended,
        sockets.pump,
        on_loop,
        log,
        on_died,
        counters.relay.pool,
        turns,
        slots,
        relay_log,
    )
    return _bound(engines, config, counters, origins, log, loop)


def _bound(
    engines: RelayEngines,
    config: Config,
    counters: Counters,
    origins: RelayOrigins,
    log: Logger,
    loop: asyncio.AbstractEventLoop,
) -> RelayEngines:
    """Bound the kernel memory of all relayed sockets, if there is a limit."""
    if config.relay_socket_bytes:
        native = engines.native
        of_threads = (lambda: ()) if native is None else native.heaviest
        found = SocketBound(
            config.relay_socket_bytes, engines.set_tight, of_threads, origins, log, loop.time, int(DRIPPED_THROUGH)
        )
        engines.bound = counters.relay.bound = found
    return engines
