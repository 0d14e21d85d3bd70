"""Find the namespaces and principals that use most of the topic-list memory lately, in bounded memory.

Use counts for half after each half-life. This module only measures; it limits no client.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from limiter.clock import Clock
from proxy.telemetry.heavy_hitters import HeavyHitters, label
from proxy.telemetry.tenants import TenantTracker

HALF_LIFE_SECONDS: Final = 60.0
MAX_ENTRIES: Final = 128
NO_PRINCIPAL: Final = "(no principal)"
# Instead of scaling old weights down, new weights are scaled up; after this many half-lives all are scaled back.
_MOST_HALF_LIVES: Final = 64.0


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


class UsageTracker:
    """Adds up the use of topic lists by namespace and principal; `top` returns the heaviest of the last minutes.

    `tenants` counts the same events by tenant.
    """

    def __init__(
        self,
        clock: Clock,
        max_entries: int = MAX_ENTRIES,
        names: Callable[[object], str] = str,
        tenants: TenantTracker | None = None,
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
