"""Count topic lists by tenant: requests, bytes sent and refusals, for a bounded number of tenants.

Rule: clients choose the names, so at most `MOST_TENANTS` tenants have numbers of their own; all others share `OTHERS`.
The first tenants get the places; when all are taken, `turn` moves the place of the lightest tenant to a tenant that
lately did clearly more. A tenant that lost its place starts at 0 if it comes back. The old numbers are added to no
other tenant: a counter that inherits the past of another would show a burst that never happened.
"""

from collections.abc import Callable, Iterator
from typing import Final

from proxy.core.counters import PREFIX, Derived
from proxy.core.instrument import Unit
from proxy.telemetry.heavy_hitters import HeavyHitters, label

MOST_TENANTS: Final = 50
OTHERS: Final = "(others)"
# The number of tenants without a place that are tracked, to find the heaviest of them.
_WATCHED: Final = 64
TURN_SECONDS: Final = 60.0
# A place moves only to a tenant that did this many times more: tenants of similar weight must not alternate.
_CLEARLY_MORE: Final = 2.0
_FADE: Final = 0.5


class TenantNumbers:
    """The numbers of a tenant; `recent` counts its requests, older ones with less weight."""

    __slots__ = ("lists", "recent", "refusals", "sent_bytes")

    def __init__(self) -> None:
        self.lists = 0
        self.sent_bytes = 0
        self.refusals = 0
        self.recent = 0.0


def _of_tenants(
    name: str, text: str, read: Callable[[TenantNumbers], int], unit: Unit = ""
) -> "Derived[TenantTracker]":
    return Derived(
        f"{PREFIX}tenant_{name}", "counter", text,
        # A tenant from an HTTP path may contain surrogates, which cannot be written as UTF-8.
        lambda tracker: {tenant.encode(errors="replace").decode(): read(found) for tenant, found in tracker.rows()},
        labels=("tenant",), unit=unit,
    )  # fmt: skip


TENANTS: Final = (
    _of_tenants("lists", "Topic lists asked for, by tenant; a bounded number of tenants, the rest is (others).",
                lambda found: found.lists),
    _of_tenants("list_bytes", "Bytes of the topic lists sent to clients, by tenant.",
                lambda found: found.sent_bytes, "bytes"),
    _of_tenants("list_refusals", "Topic lists refused for lack of memory or time, by tenant.",
                lambda found: found.refusals),
)  # fmt: skip


class TenantTracker:
    """Counts topic lists by the tenant of their namespace."""

    def __init__(self, most: int = MOST_TENANTS) -> None:
        self._most = most
        self._places: dict[str, TenantNumbers] = {}
        self._without: HeavyHitters = HeavyHitters(_WATCHED)
        self._others = TenantNumbers()
        self._turned_at = 0.0

    def asked(self, namespace: str) -> None:
        """Count a request for the topics of `namespace`."""
        name = tenant_of(namespace)
        numbers = self._places.get(name)
        if numbers is None:
            if name == OTHERS:
                numbers = self._others
            elif len(self._places) < self._most:
                numbers = self._places[name] = TenantNumbers()
            else:
                self._without.add(name, 1.0)
                numbers = self._others
        numbers.lists += 1
        numbers.recent += 1.0

    def sent(self, namespace: str, size: int) -> None:
        """Count the bytes of an answer that was sent."""
        self._places.get(tenant_of(namespace), self._others).sent_bytes += size

    def refused(self, namespace: str) -> None:
        """Count a refusal."""
        self._places.get(tenant_of(namespace), self._others).refusals += 1

    def turn(self, now: float) -> None:
        """Move the places of the lightest tenants to the heaviest without a place, at most once in `TURN_SECONDS`."""
        if now - self._turned_at < TURN_SECONDS:
            return
        self._turned_at = now
        lightest = sorted(self._places, key=lambda name: self._places[name].recent)
        newcomers = self._without.top(_WATCHED) if len(self._places) >= self._most else []
        for old, new in zip(lightest, newcomers, strict=False):
            if self._without.get(new) <= _CLEARLY_MORE * self._places[old].recent:
                break
            del self._places[old]
            self._places[new] = TenantNumbers()
        # Stop tracking tenants that got a place, and halve the past of all tenants.
        self._without = self._left_over()
        for numbers in self._places.values():
            numbers.recent *= _FADE

    def rows(self) -> Iterator[tuple[str, TenantNumbers]]:
        """Yield every tenant that has a place, and the sum of the others."""
        yield from self._places.items()
        yield OTHERS, self._others

    def _left_over(self) -> HeavyHitters:
        left = HeavyHitters(_WATCHED)
        for name in self._without.top(_WATCHED):
            if name not in self._places:
                left.add(name, self._without.get(name) * _FADE)
        return left


def tenant_of(namespace: str) -> str:
    """Return the tenant of `tenant/namespace`, cut to a bounded length."""
    return label(namespace.partition("/")[0])
