"""How many requests of the web ports are passed on at once, and how many a second; no I/O, no clock of its own.

Rules: a request beyond `maxConcurrentHttpRequests` waits for its turn, in the order they came and for a bounded time;
one beyond `httpRequestsMaxPerSecond` is told so at once, with a status that a client knows how to wait for.
"""

from dataclasses import dataclass

from limiter.clock import Clock
from limiter.errors import PermitAcquireError, PermitAcquireTimeout
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.web.http.errors import HttpRefused, retry_after


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Requests at once, requests a second if their rate is limited, and how many wait (0: no bound) for how long."""

    max_requests: int
    max_per_second: float = 1.0
    rate_limited: bool = False
    max_waiting: int = 0
    wait_seconds: float = 0.0


class Gate:
    """Count requests that are passed on."""

    def __init__(self, clock: Clock, limits: GateLimits) -> None:
        self.limits = limits
        self._clock = clock
        self._places = AsyncSemaphore(
            "http requests", limits.max_requests, max_queue=limits.max_waiting, timeout_seconds=limits.wait_seconds,
            clock=clock,
        )  # fmt: skip
        # A bucket that holds what one second allows, at least one request.
        self._left = max(1.0, limits.max_per_second)
        self._filled_at = clock.time()

    @property
    def in_work(self) -> int:
        """Count the requests that have a place."""
        return self._places.held

    @property
    def waiting(self) -> int:
        """Count the requests that wait for a place."""
        return self._places.queue_size

    def apply(self, limits: GateLimits) -> None:
        """Take over changed limits; who waits keeps its time."""
        self.limits = limits
        self._places.set_limit(limits.max_requests)
        self._places.max_queue = limits.max_waiting
        self._places.timeout_seconds = limits.wait_seconds

    async def enter(self) -> Permit:
        """Give a place, whose release the caller owes; raises HttpRefused. Who is cancelled holds nothing."""
        limits = self.limits
        if limits.rate_limited and not self._take():
            reason = f"more than {limits.max_per_second:g} requests a second (httpRequestsMaxPerSecond)"
            raise HttpRefused(429, reason, "rate", retry_after(1 / limits.max_per_second))
        try:
            return await self._places.acquire(1)
        except PermitAcquireError as error:
            late = isinstance(error, PermitAcquireTimeout)
            why = "and none has ended in time" if late else f"and {error.queued} wait already"
            reason = f"{error.held} requests are in work {why} (maxConcurrentHttpRequests)"
            raise HttpRefused(503, reason, "concurrency", retry_after(1)) from error

    def _take(self) -> bool:
        now, rate = self._clock.time(), self.limits.max_per_second
        self._left = min(max(1.0, rate), self._left + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
