"""How many requests of the web ports are passed on at once, and how many a second; no I/O, no clock of its own.

Rule: who does not fit is told so at once, with a status that a client knows how to wait for; nobody queues here.
"""

from dataclasses import dataclass

from limiter.clock import Clock
from proxy.web.refused import HttpRefused, retry_after


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Requests at once, and requests a second if their rate is limited."""

    max_requests: int
    max_per_second: float = 1.0
    rate_limited: bool = False


class Gate:
    """Count requests that are passed on; `limits` may be replaced at any time."""

    def __init__(self, clock: Clock, limits: GateLimits) -> None:
        self.limits = limits
        self.in_work = 0
        self._clock = clock
        # A bucket that holds what one second allows, at least one request.
        self._left = max(1.0, limits.max_per_second)
        self._filled_at = clock.time()

    def enter(self) -> None:
        """Let one in, whose end is `leave`; raises HttpRefused."""
        limits = self.limits
        if limits.rate_limited and not self._take():
            reason = f"more than {limits.max_per_second:g} requests a second (httpRequestsMaxPerSecond)"
            raise HttpRefused(429, reason, "rate", retry_after(1 / limits.max_per_second))
        if self.in_work >= limits.max_requests:
            reason = f"{self.in_work} requests are in work already (maxConcurrentHttpRequests)"
            raise HttpRefused(503, reason, "concurrency", retry_after(1))
        self.in_work += 1

    def leave(self) -> None:
        """Count one out."""
        self.in_work -= 1

    def _take(self) -> bool:
        now, rate = self._clock.time(), self.limits.max_per_second
        self._left = min(max(1.0, rate), self._left + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
