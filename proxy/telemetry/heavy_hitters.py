"""Who uses most of the topic-list memory lately: by namespace and by principal, in bounded memory.

Rule: names are the clients' choice, so neither their number nor their length may cost memory. Each measure is a
space-saving sketch (Metwally, Agrawal, El Abbadi 2005): whoever uses more than 1/`max_entries` of a measure is in it,
and nobody is shown with more than was used. Old use counts for half after each half-life. Measures only, limits nobody.
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
# New weights count for more instead of old ones for less; beyond this many half-lives all are scaled back.
_MOST_HALF_LIVES: Final = 64.0
_FORGOTTEN: Final = 1e-3


class HeavyHitters:
    """Count weights by name, for at most `max_entries` names at a time; a name without room takes the place of the
    least, and what that had is its uncertainty.
    """

    __slots__ = ("_entries", "_heap", "_max_entries")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        # Name -> [count, how much of it may be others'].
        self._entries: dict[str, list[float]] = {}
        # One pair for each name, with its count when it was last looked at: never above the count of today.
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, weight: float) -> None:
        """Count `weight`; nothing happens for none."""
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
        """Give what the name certainly has; 0 if it is not known."""
        count, others = self._entries.get(name, (0.0, 0.0))
        return count - others

    def top(self, count: int) -> list[str]:
        """Give the names that certainly have most, most first."""
        return heapq.nlargest(count, self._entries, key=self.get)

    def scale(self, factor: float) -> None:
        """Multiply all counts, and forget who has next to nothing left."""
        scaled = {name: [count * factor, others * factor] for name, (count, others) in self._entries.items()}
        self._entries = {name: entry for name, entry in scaled.items() if entry[0] >= _FORGOTTEN}
        self._heap = [(entry[0], name) for name, entry in self._entries.items()]
        heapq.heapify(self._heap)

    def _least(self) -> float:
        # Each count that has grown since costs one step here, once: O(log n) a call on average.
        heap, entries = self._heap, self._entries
        while heap[0][0] != (now := entries[heap[0][1]][0]):
            heapq.heapreplace(heap, (now, heap[0][1]))
        return heap[0][0]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one namespace or principal used lately: byte-seconds of permits, bytes sent to clients, refusals."""

    name: str
    byte_seconds: float
    sent_bytes: float
    refused: float


@dataclass(frozen=True, slots=True)
class TopUsage:
    """Those who use most by any measure, most byte-seconds first."""

    namespaces: list[Usage]
    principals: list[Usage]


class _Kind:
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
    """Who counts the same by tenant, since the start (`proxy.telemetry.tenants`)."""

    def asked(self, namespace: str) -> None:
        """Count a request."""

    def sent(self, namespace: str, size: int) -> None:
        """Count bytes that were sent."""

    def refused(self, namespace: str) -> None:
        """Count a refusal."""


class UsageTracker:
    """Charge topic lists to their namespace and principal; `top` gives the heaviest of the last minutes.

    `tenants` hears of all of it.
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
        self._namespaces = _Kind(max_entries)
        self._principals = _Kind(max_entries)

    def asked(self, namespace: str) -> None:
        """Count one request."""
        if self._tenants is not None:
            self._tenants.asked(namespace)

    def charge(self, namespace: str, principal: object, *, byte_seconds: float, sent_bytes: int) -> None:
        """Count what one answer cost: permit size times the seconds it was held, and the bytes its client took.

        `principal` is shown to the operator as `names` writes it; None stands for nobody.
        """
        if self._tenants is not None and sent_bytes:
            self._tenants.sent(namespace, sent_bytes)
        scale = self._scale()
        for kind, name in ((self._namespaces, label(namespace)), (self._principals, self._principal(principal))):
            kind.byte_seconds.add(name, byte_seconds * scale)
            kind.sent_bytes.add(name, sent_bytes * scale)

    def refused(self, namespace: str, principal: object) -> None:
        """Count one refusal."""
        if self._tenants is not None:
            self._tenants.refused(namespace)
        scale = self._scale()
        self._namespaces.refused.add(label(namespace), scale)
        self._principals.refused.add(self._principal(principal), scale)

    def top(self, count: int) -> TopUsage:
        """Give up to `count` names for each measure."""
        scale = self._scale()
        return TopUsage(self._namespaces.top(count, scale), self._principals.top(count, scale))

    def _principal(self, principal: object) -> str:
        return NO_PRINCIPAL if principal is None else label(self._names(principal))

    def _scale(self) -> float:
        """Give what a weight of 1 counts for now, in the units of the sketches."""
        now = self._clock.time()
        half_lives = (now - self._since) / HALF_LIFE_SECONDS
        if half_lives > _MOST_HALF_LIVES:
            for measure in (*self._namespaces.measures, *self._principals.measures):
                measure.scale(0.5**half_lives)
            self._since, half_lives = now, 0.0
        return float(2.0**half_lives)


def label(text: str) -> str:
    """Cut a name that somebody else chose to a bounded length."""
    if len(text) <= LONGEST_NAME:
        return text
    # Long names with the same beginning stay apart.
    return f"{text[:LONGEST_NAME]}...{crc32(text.encode(errors='surrogatepass')):08x}"
