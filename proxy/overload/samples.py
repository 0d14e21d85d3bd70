"""Samples of memory and backlog, and the signals that are made of them: pure, without a clock.

A ratio is memory in use as a part of its limit. A pressure is 0 at or below the low mark and 1 at or above the high
mark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

# The name of the slot of all topics that the table has no place for.
OTHER_TOPICS: Final = "(others)"


class Marks(NamedTuple):
    """The marks of a signal: pressure begins above `low`, and is full at `high`. Fractions of the limit."""

    high: float
    low: float

    def pressure(self, ratio: float | None) -> float:
        """Return the pressure from 0 to 1; 0 if the ratio is not known. Marks without a distance are a step (A1)."""
        if ratio is None or not isfinite(ratio):
            return 0.0
        if self.high <= self.low:
            return 1.0 if ratio > self.low else 0.0
        return min(1.0, max(0.0, (ratio - self.low) / (self.high - self.low)))


class OwnerBytes(NamedTuple):
    """The bytes of known owners: towards brokers, towards clients, topic lists; None: nobody counts them yet.

    `unread` was received from clients and not read. A pause of producers frees none of it, and adds to it.
    """

    towards_brokers: int | None = None
    towards_clients: int = 0
    lists: int = 0
    unread: int = 0


class MemorySample(NamedTuple):
    """Memory that cannot be reclaimed, its limit, and where both were read. `free_bytes`: held free by the allocator.

    `stall_percent` is the kernel's pressure stall information (some avg10), None if there is none; `high_events` counts
    how often the kernel slowed the cgroup down at its `memory.high`.
    """

    source: str
    used_bytes: int
    limit_bytes: int
    free_bytes: int = 0
    stall_percent: float | None = None
    high_events: int = 0


class BrokerSample(NamedTuple):
    """The memory of one broker in bytes: heap after collections and direct memory in use, with their limits."""

    heap_used: int
    heap_limit: int
    direct_used: int
    direct_limit: int


class BacklogSample(NamedTuple):
    """The unacknowledged bytes of a topic and the quota for them; a quota of 0 or below is none."""

    backlog_bytes: int
    quota_bytes: int


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals in force at one moment; None is a signal that is not known, which never slows anybody down.

    `proxy_ratio` counts what pausing producers can free (`memory_use.counted_bytes`).
    """

    proxy_ratio: float | None = None
    broker_ratio: float | None = None
    source: str = ""
    used_bytes: int = 0
    limit_bytes: int = 0
    owners: Mapping[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Return the larger of the two ratios; None if neither is known."""
        return max((ratio for ratio in (self.proxy_ratio, self.broker_ratio) if ratio is not None), default=None)

    def bits(self, holds: Callable[[float], bool]) -> int:
        """Return of which memory the ratio is so, as bits: 1 for this proxy's, 2 for the brokers'."""
        ratios = ((1, self.proxy_ratio), (2, self.broker_ratio))
        return sum(bit for bit, ratio in ratios if ratio is not None and holds(ratio))
