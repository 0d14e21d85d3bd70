"""Which of several web servers is asked next, and when one that failed is asked again; no I/O, no clock of its own.

Rules: servers take turns; one that could not be reached is left alone for a while that doubles, up to a second, so that
it is neither hammered nor missed for long after its return; when all are left alone, requests fail at once.
"""

from dataclasses import dataclass
from typing import Final

from limiter.clock import Clock

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Upstream:
    url: str
    failures: int = 0
    paused_until: float = 0.0


class Upstreams:
    """The servers of one destination, as base URLs without a final slash."""

    def __init__(self, urls: tuple[str, ...], clock: Clock) -> None:
        self._servers = [_Upstream(url.rstrip("/")) for url in urls]
        self._clock = clock
        self._next = 0

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def urls(self) -> tuple[str, ...]:
        """Give all of them."""
        return tuple(server.url for server in self._servers)

    def in_turn(self) -> list[str]:
        """Give those that may be asked now, in the order in which they should be; none if all failed just now."""
        now, count, start = self._clock.time(), len(self._servers), self._next
        self._next = (start + 1) % max(1, count)
        ordered = self._servers[start:] + self._servers[:start]
        return [server.url for server in ordered if server.paused_until <= now]

    @property
    def seconds_to_wait(self) -> float:
        """Give the time until the first of them may be asked again."""
        now = self._clock.time()
        return max(0.0, min((server.paused_until for server in self._servers), default=now) - now)

    def failed(self, url: str) -> None:
        """Leave a server alone that could not be reached."""
        server = self._find(url)
        if server is not None and server.paused_until <= self._clock.time():
            # Several requests that fail together are one failure.
            pause = min(FIRST_PAUSE_SECONDS * 2**server.failures, LONGEST_PAUSE_SECONDS)
            server.failures = min(server.failures + 1, 10)
            server.paused_until = self._clock.time() + pause

    def worked(self, url: str) -> None:
        """Forget a server's failures: it has answered."""
        server = self._find(url)
        if server is not None:
            server.failures, server.paused_until = 0, 0.0

    def _find(self, url: str) -> _Upstream | None:
        return next((server for server in self._servers if server.url == url), None)
