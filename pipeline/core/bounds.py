"""How far the advice may go from what was seen: a floor for each memory, room for watchers, and what is extrapolated.

Rule: no memory is advised below what was in use. The replay holds up an answer that waits to grow alone, where the
proxy holds up the whole connection to its broker, so it is not asked where memory is that tight. A value beyond half to
twice of what was recorded is marked, with its risk. Pure.
"""

from dataclasses import dataclass, fields
from typing import Final

from pipeline.core.model import MIB, Limits

EXTRAPOLATED: Final = "extrapolated"
_LEAST: Final = 0.5
_MOST: Final = 2.0
_RISKS: Final[dict[tuple[str, bool], str]] = {
    (
        "heap_bytes",
        False,
    ): "answers that wait to grow hold up their broker's connection, which the replay does not know",
    ("heap_bytes", True): "more lists are under way at once than brokers and clients were seen with",
    ("direct_bytes", False): "slow readers hold a larger part of it than was seen",
    ("direct_bytes", True): "more lists are sent at once than the network and clients were seen with",
    ("max_outstanding_per_broker", True): "brokers answer so many questions at once more slowly than was seen",
    ("load", True): "brokers and clients were not seen under so many requests, and may be slower",
}
_OTHER_RISK: Final = "nobody has seen the proxy with it"
_NUMBERS: Final = tuple(field.name for field in fields(Limits) if field.type is int)


@dataclass(frozen=True, slots=True)
class WatchShare:
    """Room for watch frames in the direct memory of each proxy, and what was seen that led to it; in bytes."""

    size_bytes: int = 0
    peak_bytes: int = 0


def watch_share(peak_bytes: int, largest_bytes: int, load: int, fleet: int) -> WatchShare:
    """Return the room for watch frames: so many times the watchers, shared by the fleet, and no less than one frame."""
    if not peak_bytes:
        return WatchShare()
    needed = max(largest_bytes, -(-peak_bytes * load // fleet))
    return WatchShare(-(-needed // MIB) * MIB, peak_bytes)


def direct_for(lists_bytes: int, unproven_percent: int) -> int:
    """Return the direct memory of which that percentage is enough for lists, in whole MiB.

    The replay does not know which clients have shown that they read. After a network fault nobody has.
    """
    return -(-lists_bytes * 100 // (unproven_percent * MIB)) * MIB


def floor_of(
    largest_bytes: tuple[int, int], peak_bytes: tuple[int, int], fleet: int, unproven_percent: int
) -> tuple[int, int]:
    """Return the least heap and direct memory that lists have at each proxy of a fleet so many times the recorded one.

    Both hold the largest list, and what was seen in use at once; of direct memory the part that `direct_for` makes the
    whole of again.
    """
    heap, direct = largest_bytes
    seen_heap, seen_direct = peak_bytes
    return max(heap, -(-seen_heap // fleet)), max(direct, -(-seen_direct * unproven_percent // (100 * fleet)))


def extrapolated(limits: Limits, recorded: Limits, load: int = 1) -> dict[str, str]:
    """Return the fields whose values are beyond half to twice the recorded ones, and `load`; each with its risk."""
    values = [(name, getattr(limits, name), getattr(recorded, name)) for name in _NUMBERS] + [("load", load, 1)]
    return {name: risk for name, value, before in values if (risk := _beyond(name, value, before))}


def _beyond(name: str, value: int, before: int) -> str | None:
    if value == before:
        return None
    # 0 is no limit, or no bound: more than any.
    much = not value or (bool(before) and value > _MOST * before)
    little = not much and (not before or value < _LEAST * before)
    if not (much or little):
        return None
    return _RISKS.get((name, much), _OTHER_RISK)
