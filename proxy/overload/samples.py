"""Samples of memory and backlog, and the signals that are made of them: pure, without a clock.

A ratio is memory in use as a part of its limit. A pressure is 0 at or below the low mark and 1 at or above the high
mark.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final, NamedTuple

# The name of the slot of all topics that the table has no place for.
OTHER_TOPICS: Final = "(others)"
# Percent of time in which some task waited for memory (PSI), from which on the kernel is short of memory.
STALLED_PERCENT: Final = 10.0
# Memory of others counts up to so far below the low mark, as a part of the limit.
PRODUCERS_SHARE: Final = 0.05


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
    """The bytes of known owners: towards brokers, towards clients, topic lists.

    `unread` was received from clients and not read. A pause of producers frees none of it, and adds to it.
    """

    towards_brokers: int = 0
    towards_clients: int = 0
    lists: int = 0
    unread: int = 0


class MemorySample(NamedTuple):
    """Memory that cannot be reclaimed and is not free in the allocator, its limit, and where both were read.

    `stall_percent` is the kernel's pressure stall information (some avg10), None if there is none; `high_events` counts
    how often the kernel slowed the cgroup down at its `memory.high`.
    """

    source: str
    used_bytes: int
    limit_bytes: int
    stall_percent: float | None = None
    high_events: int = 0


class BacklogSample(NamedTuple):
    """The unacknowledged bytes of a topic and the quota for them; a quota of 0 or below is none."""

    backlog_bytes: int
    quota_bytes: int


class Signals(NamedTuple):
    """The signals in force at one moment; None is a signal that is not known, which never slows anybody down.

    `proxy_ratio` counts what pausing producers can free (`counted_bytes`).
    """

    proxy_ratio: float | None = None
    broker_ratio: float | None = None
    source: str = ""
    used_bytes: int = 0
    limit_bytes: int = 0
    owners: Mapping[str, int] = {}

    @property
    def ratio(self) -> float | None:
        """Return the larger of the two ratios; None if neither is known."""
        return max((ratio for ratio in self[:2] if ratio is not None), default=None)

    def bits(self, holds: Callable[[float], bool]) -> int:
        """Return of which memory the ratio is so, as bits: 1 for this proxy's, 2 for the brokers'."""
        return sum(bit for bit, ratio in zip((1, 2), self[:2], strict=True) if ratio is not None and holds(ratio))


def counted_bytes(used: int, limit: int, owners: OwnerBytes, marks: Marks) -> int:
    """Return the memory that the throttle counts: what a pause of producers frees, and of the rest what leaves a share.

    Memory of others counts up to 5 points below the low mark. Above that a pause could not bring memory under the low
    mark: it would free nothing and add receive buffers.
    """
    towards_brokers = min(used, max(0, owners.towards_brokers))
    most_of_others = int(max(0.0, marks.low - PRODUCERS_SHARE) * limit)
    return towards_brokers + min(used - towards_brokers, most_of_others)


class MemoryMonitor:
    """Makes signals of samples, and says when the allocator is to give back: once for each crossing of the marks."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self._is_trimmed = False
        self._high_events: int | None = None

    def take(self, sample: MemorySample, owners: OwnerBytes) -> Signals:
        """Return the signal of a sample."""
        used = sample.used_bytes
        ratio = counted_bytes(used, sample.limit_bytes, owners, self.marks) / sample.limit_bytes
        stalled = sample.stall_percent is not None and sample.stall_percent >= STALLED_PERCENT
        slowed = self._high_events is not None and sample.high_events > self._high_events
        self._high_events = sample.high_events
        # Stalls alone say nothing, as a machine may lack memory for others. Limits at memory.high are our own.
        if slowed or (stalled and ratio >= self.marks.low):
            ratio = max(ratio, self.marks.high)
        known = owners._asdict()
        known["rest"] = max(0, used - sum(known.values()))
        return Signals(ratio, None, sample.source, used, sample.limit_bytes, known)

    def trim_is_due(self, ratio: float) -> bool:
        """Return True once for each time that memory crosses the high mark, from below the low mark."""
        was = self._is_trimmed
        self._is_trimmed = ratio >= self.marks.low and (was or ratio >= self.marks.high)
        return self._is_trimmed and not was
