"""Memory that cannot be reclaimed: parse the kernel's files, count what the throttle may act on. No I/O, no clock.

`memory.current` holds the page cache, so anonymous memory and sockets are counted instead (docs/overload.md). The
allocator's free bytes and the owners of memory are taken off, since a pause of producers frees neither.
"""

from typing import Final, NamedTuple

from proxy.core.process_memory import parse_status_field
from proxy.overload.samples import Marks, MemorySample, OwnerBytes, Signals

# A signal that fails keeps its last value for so many samples.
SAMPLES_KEPT: Final = 5
# Percent of time in which some task waited for memory (PSI), from which on the kernel is short of memory.
STALLED_PERCENT: Final = 10.0
# Memory of others counts up to so far below the low mark, as a part of the limit.
PRODUCERS_SHARE: Final = 0.05


def parse_fields(text: str | None) -> dict[str, int]:
    """Return the lines `name number` of a file such as memory.stat or memory.events; other lines are passed over."""
    found = {}
    for line in (text or "").splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdecimal():
            found[name] = int(number)
    return found


def v2_bytes(stat: str | None) -> int | None:
    """Return anonymous memory and sockets of a v2 group; None if memory.stat has no `anon`."""
    fields = parse_fields(stat)
    return fields["anon"] + fields.get("sock", 0) if "anon" in fields else None


def v1_bytes(stat: str | None, socket_bytes: int) -> int | None:
    """Return anonymous memory of a v1 group, and the sockets of this process, which v1 charges nowhere."""
    fields = parse_fields(stat)
    rss = fields.get("total_rss", fields.get("rss"))
    return None if rss is None else rss + socket_bytes


def process_bytes(statm: str | None, page_bytes: int, socket_bytes: int) -> int | None:
    """Return the memory of this process that is not shared, and its sockets."""
    words = (statm or "").split()
    if len(words) < 3 or not (words[1].isdecimal() and words[2].isdecimal()):
        return None
    return max(0, int(words[1]) - int(words[2])) * page_bytes + socket_bytes


def machine_bytes(meminfo: str | None) -> tuple[int, int] | None:
    """Return memory in use and in all of /proc/meminfo; what is available is not in use."""
    total = parse_status_field(meminfo, "MemTotal")
    available = parse_status_field(meminfo, "MemAvailable")
    return None if total is None or available is None or not total else (max(0, total - available), total)


def stall_percent(text: str | None) -> float | None:
    """Return `some avg10` of a PSI file; None if the file is absent, empty or something else."""
    for line in (text or "").splitlines():
        words = line.split()
        if words[:1] == ["some"]:
            for word in words[1:]:
                name, _, number = word.partition("=")
                if name == "avg10" and number.replace(".", "", 1).isdecimal():
                    return min(100.0, float(number))
    return None


class AllocatorBook:
    """How much of the allocator's free memory is resident: only what became free since the last trim.

    The allocator counts pages as free that it has given back to the system, and that nobody may take off again.
    """

    __slots__ = ("_returned_bytes",)

    def __init__(self) -> None:
        self._returned_bytes: int | None = None

    def free_bytes(self, counted_free: int) -> int:
        """Return the resident bytes among those that the allocator counts as free; 0 before the first trim."""
        if self._returned_bytes is None:
            return max(0, counted_free)
        # Pages that were given back come back when they are used, and then are counted no more.
        self._returned_bytes = min(self._returned_bytes, counted_free)
        return max(0, counted_free - self._returned_bytes)

    def trimmed(self, counted_free: int) -> None:
        """Record that all free pages went back to the system."""
        self._returned_bytes = max(0, counted_free)


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


class MonitorNumbers(NamedTuple):
    """The state of a `MemoryMonitor` for JSON: the failures in a row, whether a trim is spent, and the events seen."""

    failed_in_a_row: int
    is_trimmed: bool
    high_events: int


class MemoryMonitor:
    """The memory signal: the last sample, kept for 5 samples that fail; decides when the allocator is trimmed."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.failures = 0
        self._last = Signals()
        self._failed_in_a_row = 0
        self._is_trimmed = False
        self._high_events: int | None = None

    @property
    def numbers(self) -> MonitorNumbers:
        """Return the state."""
        return MonitorNumbers(self._failed_in_a_row, self._is_trimmed, self._high_events or 0)

    def take(self, sample: MemorySample, owners: OwnerBytes) -> Signals:
        """Return the signal of a sample; a sample without a limit fails."""
        if sample.limit_bytes <= 0 or sample.used_bytes < 0:
            return self.failed()
        self._failed_in_a_row = 0
        used = max(0, sample.used_bytes - sample.free_bytes)
        ratio = counted_bytes(used, sample.limit_bytes, owners, self.marks) / sample.limit_bytes
        stalled = sample.stall_percent is not None and sample.stall_percent >= STALLED_PERCENT
        slowed = self._high_events is not None and sample.high_events > self._high_events
        self._high_events = sample.high_events
        # Stalls alone say nothing, as a machine may lack memory for others. Limits at memory.high are our own.
        if slowed or (stalled and ratio >= self.marks.low):
            ratio = max(ratio, self.marks.high)
        self._last = Signals(
            proxy_ratio=ratio,
            source=sample.source,
            used_bytes=used,
            limit_bytes=sample.limit_bytes,
            owners=_by_owner(used, owners),
        )
        return self._last

    def failed(self) -> Signals:
        """Return the last signal for 5 samples that fail, then a signal that is not known."""
        self.failures += 1
        self._failed_in_a_row += 1
        if self._failed_in_a_row > SAMPLES_KEPT:
            self._last = Signals()
        return self._last

    def forget(self) -> None:
        """Forget the last signal: memory is not watched for a while."""
        self._last = Signals()
        self._failed_in_a_row = 0
        self._high_events = None

    def trim_is_due(self) -> bool:
        """Return True once for each time that memory crosses the high mark, from below the low mark."""
        ratio = self._last.proxy_ratio
        if ratio is None or self._last.limit_bytes <= 0:
            return False
        if ratio < self.marks.low:
            self._is_trimmed = False
        elif ratio >= self.marks.high and not self._is_trimmed:
            self._is_trimmed = True
            return True
        return False


def _by_owner(used: int, owners: OwnerBytes) -> dict[str, int]:
    known = {
        "towards_brokers": owners.towards_brokers or 0,
        "towards_clients": owners.towards_clients,
        "lists": owners.lists,
        "unread": owners.unread,
    }
    return {**known, "rest": max(0, used - sum(known.values()))}
