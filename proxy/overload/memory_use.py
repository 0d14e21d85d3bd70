"""What the throttles count of this machine's memory, and when its allocator gives back. No I/O, no clock.

The allocator's free bytes and the owners of memory are taken off, since a pause of producers frees neither.
"""

from typing import Final

from proxy.overload.samples import Marks, MemorySample, OwnerBytes, Signals

# Percent of time in which some task waited for memory (PSI), from which on the kernel is short of memory.
STALLED_PERCENT: Final = 10.0
# Memory of others counts up to so far below the low mark, as a part of the limit.
PRODUCERS_SHARE: Final = 0.05


def counted_bytes(used: int, limit: int, owners: OwnerBytes, marks: Marks) -> int:
    """Return the memory that the throttle counts: what a pause of producers frees, and of the rest what leaves a share.

    Memory of others counts up to 5 points below the low mark. Above that a pause could not bring memory under the low
    mark: it would free nothing and add receive buffers. Without numbers for brokers all memory counts.
    """
    if owners.towards_brokers is None:
        return used
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
        used = max(0, sample.used_bytes - sample.free_bytes)
        ratio = counted_bytes(used, sample.limit_bytes, owners, self.marks) / sample.limit_bytes
        stalled = sample.stall_percent is not None and sample.stall_percent >= STALLED_PERCENT
        slowed = self._high_events is not None and sample.high_events > self._high_events
        self._high_events = sample.high_events
        # Stalls alone say nothing, as a machine may lack memory for others. Limits at memory.high are our own.
        if slowed or (stalled and ratio >= self.marks.low):
            ratio = max(ratio, self.marks.high)
        known = {**owners._asdict(), "towards_brokers": owners.towards_brokers or 0}
        known["rest"] = max(0, used - sum(known.values()))
        return Signals(ratio, None, sample.source, used, sample.limit_bytes, known)

    def forget(self) -> None:
        """Forget the last sample: memory is not watched for a while."""
        self._high_events = None

    def trim_is_due(self, ratio: float) -> bool:
        """Return True once for each time that memory crosses the high mark, from below the low mark."""
        if ratio < self.marks.low:
            self._is_trimmed = False
        elif ratio >= self.marks.high and not self._is_trimmed:
            self._is_trimmed = True
            return True
        return False
