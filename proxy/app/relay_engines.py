"""Build the relay engine of a proxy: the native one, or the small one without the extension."""

from typing import TYPE_CHECKING, cast

from proxy.app.processors import usable_processors
from proxy.brokers.sockets import Sockets
from proxy.config.core import Core
from proxy.core.counters import Counters
from proxy.core.native import native
from proxy.relay.engine import DRIPPED_THROUGH
from proxy.relay.engines import RelayEngines
from proxy.relay.metrics import RELAYS
from proxy.relay.relay_crowds import RelayCrowds
from proxy.relay.relay_log import RelayLog
from proxy.relay.socket_bound import SocketBound
from proxy.relay.threads import choose_threads
from proxy.relay.watch_limits import WatchLimits

if TYPE_CHECKING:
    from proxy.core.native import RelayEngine


def make_engines(
    core: Core,
    sockets: Sockets,
    watch: WatchLimits,
    relay_log: RelayLog,
    origins: RelayCrowds,
) -> RelayEngines:
    """Return the engine; its threads are not started yet."""
    config, loop, counters, log, extension = core.config, core.loop, core.counters, core.log.of("relay"), native()
    threads = choose_threads(config, extension, usable_processors())
    unsent, budget = config.relay_unsent_bytes, core.loop_budget
    if config.without_extension:
        from proxy.relay.small_relay import SmallEngine

        buffer = memoryview(bytearray(config.relay_buffer_bytes))
        small = SmallEngine(loop, sockets.shared, sockets.hangup, budget, counters, buffer)
        return _shown(counters, RelayEngines(small, unsent_bytes=unsent, threads=threads))

    # Only installations with the extension need these modules.
    from proxy.relay.memory.windows import can_unlock
    from proxy.relay.native_api import linger_millis
    from proxy.relay.native_engine import NativeEngine
    from proxy.relay.topic_slots import TopicSlots

    module = extension.module
    assert module is not None
    slots = TopicSlots(loop.time, module.SlotBooks())
    narrow_windows = config.relay_socket_bytes > 0 and can_unlock()

    def make_pairs() -> "RelayEngine":
        limits = (threads.count, config.relay_buffer_bytes, linger_millis(), config.relay_pool_bytes, unsent)
        return cast("RelayEngine", module.RelayEngine(*limits, slots.books, narrow_windows))

    engine = NativeEngine(core, sockets, make_pairs, watch, slots, relay_log)
    bound = None
    if config.relay_socket_bytes:
        bound = SocketBound(
            config.relay_socket_bytes, engine.set_tight, engine.heaviest, origins, log, loop.time, int(DRIPPED_THROUGH)
        )
    return _shown(
        counters,
        RelayEngines(engine, engine, bound, unsent_bytes=unsent, narrow_windows=narrow_windows, threads=threads),
    )


def _shown(counters: Counters, engines: RelayEngines) -> RelayEngines:
    counters.derive(RELAYS, lambda: engines)
    return engines
