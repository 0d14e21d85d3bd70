"""The bytes in use of each line of the memory budget whose use is counted; other lines are limits only."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.core.counters import Counters
from proxy.net.ended_sockets import ENDED_BYTES
from proxy.net.spill import read_back, space
from proxy.net.write_watch import WRITERS_KERNEL_BYTES
from proxy.relay.engines import RelayEngines

if TYPE_CHECKING:
    from proxy.net.send_buffers import KernelMemory
    from proxy.telemetry.events.log import EventLog


def used_bytes(
    counters: Counters,
    held: Mapping[str, float],
    sends: "KernelMemory | None",
    relays: RelayEngines | None,
    event_log: "EventLog | None",
) -> Mapping[str, float]:
    """Return the bytes by the label of the line; `held`: those of the nodes that are lines."""
    found = {**held, _send_line(sends): counters[WRITERS_KERNEL_BYTES].value}
    if counters.reading(space.LIMIT_BYTES)[()]:
        found["spill_lists"] = counters.reading(read_back.HELD_BYTES)[()]
    if relays is not None:
        found["stalled_relays" if relays.bound is None else "relay_sockets"] = sum(relays.weighed)
        if relays.pool is not None:
            found["relay_pool"] = relays.pool.used_bytes
    found["ended_connections"] = counters.reading(ENDED_BYTES)[()]
    sinks = {} if event_log is None else event_log.sinks()
    return found | {f"events_{sink}": numbers.buffer_bytes for sink, numbers in sinks.items()}


def _send_line(sends: "KernelMemory | None") -> str:
    """Return the line in which the bytes for clients are: in a sum only the large buffers hold much."""
    return "send_buffers" if sends is None or sends.limit_bytes is None else "large_send_buffers"
