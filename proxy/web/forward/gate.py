"""Limit the requests of the web ports that are forwarded at once, and per second; no I/O, no clock of its own.

Rules: a request beyond `maxConcurrentHttpRequests`, or an upload beyond three quarters of them, waits in turns by key
(`places.py`) for a few seconds, which is less than clients wait; then it is refused with 503. A request beyond
`httpRequestsMaxPerSecond` is refused at once with 429 and Retry-After; no key uses up what others may ask for
(`shared_rate.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError, PermitAcquireTimeout
from proxy.core.counters import gauge
from proxy.core.log import Logger
from proxy.net.write_watch import WriteLimits
from proxy.web.forward.places import Place, SharedPlaces
from proxy.web.http.errors import HttpRefused, retry_after
from proxy.web.http.shared_rate import SharedRate

if TYPE_CHECKING:
    from proxy.web.forward.visits import Visit

# Shorter than the time-outs of clients, so that each request is answered.
GATE_SECONDS: Final = 5.0
IN_WORK: Final = gauge("http_requests_in_work", "HTTP requests being forwarded now.")


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits of requests at once, of requests a second if `rate_limited`, and of waiting requests (0: no limit)."""

    max_requests: int
    max_per_second: float = 1.0
    rate_limited: bool = False
    max_waiting: int = 0
    wait_seconds: float = 0.0


class Gate:
    """Admits requests within the limits."""

    def __init__(self, clock: Clock, limits: GateLimits, rates: Callable[[], WriteLimits], log: Logger) -> None:
        self.limits = limits
        self._clock = clock
        self._places = SharedPlaces(
            "http requests", limits.max_requests, clock, rates, log, max_waiting=limits.max_waiting
        )
        self._rate = SharedRate(limits.max_per_second, clock.time())

    @property
    def in_work(self) -> int:
        """Return the number of admitted requests."""
        return self._places.semaphore.held

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait to be admitted."""
        return self._places.waiting

    def apply(self, limits: GateLimits) -> None:
        """Apply changed limits; requests that wait keep their time-out."""
        self.limits = limits
        self._rate.apply(limits.max_per_second)
        self._places.apply(limits.max_requests, limits.max_waiting)

    async def enter(self, guest: "Visit") -> Place:
        """Wait for a place, which the caller must release; raises HttpRefused. A cancelled call holds no place."""
        limits = self.limits
        if limits.rate_limited and not self._rate.take(guest.key, self._clock.time()):
            reason = f"more than {limits.max_per_second:g} requests a second (httpRequestsMaxPerSecond)"
            raise HttpRefused(429, reason, "rate", retry_after(1 / limits.max_per_second))
        try:
            return await self._places.enter(guest, limits.wait_seconds)
        except PermitAcquireError as error:
            late = isinstance(error, PermitAcquireTimeout)
            why = "and none has ended in time" if late else f"and {error.queued} wait already"
            what = "requests" if error.limiter == self._places.semaphore.name else "uploads"
            reason = f"{error.held} {what} are in work {why} (maxConcurrentHttpRequests)"
            raise HttpRefused(503, reason, "concurrency", retry_after(1)) from error
