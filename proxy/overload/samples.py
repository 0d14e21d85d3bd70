"""Samples and signals of overload control, and the Protocols of all that it uses; no engine is known here.

A ratio is memory in use as a part of its limit. A pressure is 0 at or below the low mark and 1 at or above the high
mark. Nothing in here has a clock.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple, Protocol

from proxy.relay.engine import Direction, PauseReason, RelaySnapshot
from proxy.relay.topic_slots import Begin, RateCounts, SlotSample

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

    def short(self, mark: float) -> int:
        """Return which memory is at or above a mark, as bits: 1 for this proxy's, 2 for the brokers'."""
        ratios = ((1, self.proxy_ratio), (2, self.broker_ratio))
        return sum(bit for bit, ratio in ratios if ratio is not None and ratio >= mark)

    def pressing(self, marks: Marks) -> int:
        """Return which memory makes pressure between two marks, as the same bits."""
        ratios = ((1, self.proxy_ratio), (2, self.broker_ratio))
        return sum(bit for bit, ratio in ratios if marks.pressure(ratio) > 0)

    @property
    def ratio(self) -> float | None:
        """Return the larger of the two ratios; None if neither is known."""
        known = [ratio for ratio in (self.proxy_ratio, self.broker_ratio) if ratio is not None]
        return max(known, default=None)


class ProducerRelay(Hashable, Protocol):
    """The parts of a relay (`proxy.relay.engine.Relay`) that the threshold throttle uses."""

    @property
    def produces(self) -> bool:
        """Return whether the client has opened a producer."""

    @property
    def consumes(self) -> bool:
        """Return whether the client has subscribed."""

    def snapshot(self) -> RelaySnapshot:
        """Return the relay as it is now."""

    def pause(self, direction: Direction, reason: PauseReason) -> None:
        """Stop to read the sender of `direction`, for one more reason."""

    def resume(self, direction: Direction, reason: PauseReason) -> None:
        """Read the sender of `direction` again, unless another reason is left."""

    def drip(self, direction: Direction, *, whole_read: bool = False) -> None:
        """Pass one whole frame, or one read, although THRESHOLD or RATE pause it; then the pause holds on."""


class RateTable(Protocol):
    """The topics that were seen and their token buckets (`proxy.relay.topic_slots.TopicSlots`)."""

    @property
    def counts(self) -> RateCounts:
        """Return what is counted of all topics."""

    def walk(self) -> Iterable[SlotSample]:
        """Yield the counters of all slots; the table may change while they are walked."""

    def set_rate(self, slot: int, bytes_per_second: float | None, messages_per_second: float | None) -> None:
        """Limit a slot; None is no limit. Tokens and debt stay."""

    def begin_with(self, begin: Begin | None) -> None:
        """Limit new topics to the rates that `begin` says, before their first message; None for no limits."""


class SignalReader(Protocol):
    """The reader of this machine's memory."""

    def read(self) -> MemorySample:
        """Return memory in use and its limit; raise OSError or ValueError if it cannot be read."""

    def trim(self) -> None:
        """Return free pages of the allocator to the system."""


class BrokerReader(Protocol):
    """The reader of the brokers' own statistics."""

    async def memory(self) -> Mapping[str, BrokerSample | Exception]:
        """Return the memory of each broker by its address, or why it is not known.

        Raises StatisticsRefused or StatisticsUnavailable if that of none is known.
        """

    async def backlog(self, topic: str) -> BacklogSample:
        """Return the backlog of a topic; raises as `memory` does."""
