"""Build the relay engine of a proxy: the native one, or the small one without the extension."""

from collections.abc import Callable
from typing import cast

from proxy.app.processors import usable_processors
from proxy.brokers.sockets import Sockets
from proxy.config.core import Core
from proxy.core.native import native
from proxy.relay.engine import DRIPPED_THROUGH
from proxy.relay.engines import RelayEngines
from proxy.relay.memory.bound import RelayOrigins, SocketBound
from proxy.relay.relay_log import RelayLog
from proxy.relay.threads import choose_threads
from proxy.relay.watch_limits import WatchLimits


def make_engines(
    core: Core,
    sockets: Sockets,
    watch: WatchLimits,
    relay_log: RelayLog,
    on_died: Callable[[int], None],
    origins: RelayOrigins,
) -> RelayEngines:
    """Return the engine; its threads are not started yet."""
    config, loop, counters, log, extension = core.config, core.loop, core.counters, core.log.of("relay"), native()
    threads = choose_threads(config, extension, usable_processors())
    unsent, budget = config.relay_unsent_bytes, core.loop_budget
    if config.without_extension:
        from proxy.relay.small_relay import SmallEngine

        buffer = memoryview(bytearray(config.relay_buffer_bytes))
        small = SmallEngine(loop, sockets.shared, sockets.hangup, budget, counters, buffer)
        return RelayEngines(small, unsent_bytes=unsent, threads=threads)

    # Only installations with the extension need these modules.
    from proxy.relay.memory.windows import ReceiveWindows
    from proxy.relay.native_api import NativePairs, linger_millis
    from proxy.relay.native_engine import NativeEngine
    from proxy.relay.topic_slots import TopicSlots

    module = extension.module
    assert module is not None
    slots = TopicSlots(loop.time, module.SlotBooks())
    windows = ReceiveWindows(config.relay_receive_buffer_bytes) if config.relay_socket_bytes else None
    pool = None
    if config.relay_pool_bytes:
        # Only installations with a pool need this module.
        from proxy.relay.memory.pool import RelayPool

        pool = RelayPool(config.relay_pool_bytes)

    def make_pairs() -> NativePairs:
        limits = (threads.count, config.relay_buffer_bytes, linger_millis(), config.relay_pool_bytes, unsent)
        wide_window = windows.wide_bytes if windows is not None and windows.may_narrow else None
        return cast(NativePairs, module.RelayEngine(*limits, slots.books, wide_window))

    engine = NativeEngine(
        loop,
        make_pairs,
        budget,
        counters,
        watch,
        sockets.hangup.ended,
        sockets.pump,
        log,
        on_died,
        slots,
        relay_log,
        pool,
    )
    engines = RelayEngines(engine, engine, slots, unsent_bytes=unsent, windows=windows, threads=threads, pool=pool)
    if config.relay_socket_bytes:
        found = SocketBound(
            config.relay_socket_bytes, engines.set_tight, engine.heaviest, origins, log, loop.time, int(DRIPPED_THROUGH)
        )
        engines.bound = found
    return engines
