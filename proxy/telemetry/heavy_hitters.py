"""Find the namespaces and principals that use most of the topic-list memory lately, in bounded memory.

Rule: clients choose the names, so neither their number nor their length may cost memory. Each measure is a space-saving
sketch (Metwally, Agrawal, El Abbadi 2005): every name with more than 1/`max_entries` of a measure is in it, and no name
is shown with more than its use. Use counts for half after each half-life. This module only measures; it limits no
client.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from zlib import crc32

from limiter.clock import Clock

HALF_LIFE_SECONDS: Final = 60.0
MAX_ENTRIES: Final = 128
LONGEST_NAME: Final = 120
NO_PRINCIPAL: Final = "(no principal)"
# Instead of scaling old weights down, new weights are scaled up; after this many half-lives all are scaled back.
_MOST_HALF_LIVES: Final = 64.0
_FORGOTTEN: Final = 1e-3


class HeavyHitters:
    """Sums weights by name, for at most `max_entries` names at a time.

    If all entries are taken, a new name replaces the least name; the weight of the replaced name is the uncertainty of
    the new one.
    """

    __slots__ = ("_entries", "_heap", "_max_entries")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        # Name -> [count, uncertainty: how much of the count may belong to replaced names].
        self._entries: dict[str, list[float]] = {}
        # A pair for each name, with its count at the last comparison, which is never above the current count.
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, weight: float) -> None:
        """Add `weight` to a name; weights of 0 or less are ignored."""
        if not weight > 0:
            return
        entry = self._entries.get(name)
        if entry is not None:
            entry[0] += weight
        elif len(self._entries) < self._max_entries:
            self._entries[name] = [weight, 0.0]
            heapq.heappush(self._heap, (weight, name))
        else:
            least = self._least()
            del self._entries[self._heap[0][1]]
            self._entries[name] = [least + weight, least]
            heapq.heapreplace(self._heap, (least + weight, name))

    def get(self, name: str) -> float:
        """Return the certain weight of a name; 0 if the name has no entry."""
        count, others = self._entries.get(name, (0.0, 0.0))
        return count - others

    def top(self, count: int) -> list[str]:
        """Return the names with the largest certain weights, largest first."""
        return heapq.nlargest(count, self._entries, key=self.get)

    def scale(self, factor: float) -> None:
        """Multiply all counts, and remove names with next to no weight left."""
        scaled = {name: [count * factor, others * factor] for name, (count, others) in self._entries.items()}
        self._entries = {name: entry for name, entry in scaled.items() if entry[0] >= _FORGOTTEN}
        self._heap = [(entry[0], name) for name, entry in self._entries.items()]
        heapq.heapify(self._heap)

    def _least(self) -> float:
        # Each count that has grown since the last call costs one step here, once: O(log n) a call on average.
        heap, entries = self._heap, self._entries
        while heap[0][0] != (now := entries[heap[0][1]][0]):
            heapq.heapreplace(heap, (now, heap[0][1]))
        return heap[0][0]


@dataclass(frozen=True, slots=True)
class Usage:
    """The recent use of a namespace or principal: byte-seconds of permits, bytes sent to clients, refusals."""

    name: str
    byte_seconds: float
    sent_bytes: float
    refused: float


@dataclass(frozen=True, slots=True)
class TopUsage:
    """The heaviest namespaces and principals by any measure, most byte-seconds first."""

    namespaces: list[Usage]
    principals: list[Usage]


class _Measures:
    """The three measures of namespaces, or of principals."""

    __slots__ = ("byte_seconds", "refused", "sent_bytes")

    def __init__(self, max_entries: int) -> None:
        self.byte_seconds = HeavyHitters(max_entries)
        self.sent_bytes = HeavyHitters(max_entries)
        self.refused = HeavyHitters(max_entries)

    @property
    def measures(self) -> tuple[HeavyHitters, ...]:
        return self.byte_seconds, self.sent_bytes, self.refused

    def top(self, count: int, scale: float) -> list[Usage]:
        names: Iterable[str] = dict.fromkeys(name for measure in self.measures for name in measure.top(count))
        rows = [Usage(name, *(measure.get(name) / scale for measure in self.measures)) for name in names]
        return sorted(rows, key=lambda row: (row.byte_seconds, row.sent_bytes, row.refused), reverse=True)


class TenantCounter(Protocol):
    """The counter of the same events by tenant (`proxy.telemetry.tenants`)."""

    def asked(self, namespace: str) -> None:
        """Count a request."""

    def sent(self, namespace: str, size: int) -> None:
        """Count bytes that were sent."""

    def refused(self, namespace: str) -> None:
        """Count a refusal."""


class UsageTracker:
    """Adds up the use of topic lists by namespace and principal; `top` returns the heaviest of the last minutes.

    `tenants` counts the same events by tenant.
    """

    def __init__(
        self,
        clock: Clock,
        max_entries: int = MAX_ENTRIES,
        names: Callable[[object], str] = str,
        tenants: TenantCounter | None = None,
    ) -> None:
        self._names = names
        self._tenants = tenants
        self._clock = clock
        self._since = clock.time()
        self._namespaces = _Measures(max_entries)
        self._principals = _Measures(max_entries)

    def asked(self, namespace: str) -> None:
        """Count a request."""
        if self._tenants is not None:
            self._tenants.asked(namespace)

    def charge(self, namespace: str, principal: object, *, byte_seconds: float, sent_bytes: int) -> None:
        """Add the cost of an answer: permit size times the seconds it was held, and the bytes its client took.

        `names` converts `principal` for the operator; None is a client without authentication.
        """
        if self._tenants is not None and sent_bytes:
            self._tenants.sent(namespace, sent_bytes)
        scale = self._scale()
        for kind, name in ((self._namespaces, label(namespace)), (self._principals, self._principal(principal))):
            if byte_seconds:
                kind.byte_seconds.add(name, byte_seconds * scale)
            if sent_bytes:
                kind.sent_bytes.add(name, sent_bytes * scale)

    def refused(self, namespace: str, principal: object) -> None:
        """Count a refusal by namespace, principal and tenant."""
        if self._tenants is not None:
            self._tenants.refused(namespace)
        scale = self._scale()
        self._namespaces.refused.add(label(namespace), scale)
        self._principals.refused.add(self._principal(principal), scale)

    def top(self, count: int) -> TopUsage:
        """Return up to `count` names for each measure."""
        scale = self._scale()
        return TopUsage(self._namespaces.top(count, scale), self._principals.top(count, scale))

    def _principal(self, principal: object) -> str:
        return NO_PRINCIPAL if principal is None else label(self._names(principal))

    def _scale(self) -> float:
        """Return the factor for new weights; scale all sketches back when it gets too large."""
        now = self._clock.time()
        half_lives = (now - self._since) / HALF_LIFE_SECONDS
        if half_lives > _MOST_HALF_LIVES:
            for measure in (*self._namespaces.measures, *self._principals.measures):
                measure.scale(0.5**half_lives)
            self._since, half_lives = now, 0.0
        return float(2.0**half_lives)


def label(text: str) -> str:
    """Cut a name that a client chose to a bounded length."""
    if len(text) <= LONGEST_NAME:
        return text
    # The checksum keeps long names with the same beginning apart.
    return f"{text[:LONGEST_NAME]}...{crc32(text.encode(errors='surrogatepass')):08x}"
