"""Choose the next of several web servers, and pause servers that failed; no I/O, no clock of its own.

Rules: servers take turns. A server that could not be reached is paused for a time that doubles, up to a second, and is
up to a quarter shorter at random: it is neither hammered nor unused for long after its return. When all servers are
paused, requests fail at once.
"""

import random
from dataclasses import dataclass
from typing import Final

from limiter.clock import Clock
from proxy.core.counters import counter
from proxy.core.tasks import Draw, spread

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0
REDIRECTS: Final = counter("http_redirects", "Redirects of brokers that the proxy followed for clients.")
SERVER_FAILURES: Final = counter("http_server_failures", "Failed connections to web services: refused, or broken.")


@dataclass(slots=True)
class _Upstream:
    url: str
    failures: int = 0
    paused_until: float = 0.0


class Upstreams:
    """The servers of a destination, as base URLs without a final slash."""

    def __init__(self, urls: tuple[str, ...], clock: Clock, draw: Draw = random.random) -> None:
        self._servers = [_Upstream(url.rstrip("/")) for url in urls]
        self._clock = clock
        self._draw = draw
        self._next = 0

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the URLs of all servers."""
        return tuple(server.url for server in self._servers)

    def in_turn(self) -> list[str]:
        """Return the servers to try now, in order; empty if all are paused."""
        now, count, start = self._clock.time(), len(self._servers), self._next
        self._next = (start + 1) % max(1, count)
        ordered = self._servers[start:] + self._servers[:start]
        return [server.url for server in ordered if server.paused_until <= now]

    @property
    def seconds_to_wait(self) -> float:
        """Return the time until the pause of the first server ends."""
        now = self._clock.time()
        return max(0.0, min((server.paused_until for server in self._servers), default=now) - now)

    def failed(self, url: str) -> None:
        """Pause a server that could not be reached."""
        server = self._find(url)
        if server is not None and server.paused_until <= self._clock.time():
            # Several requests that fail together are one failure.
            pause = min(FIRST_PAUSE_SECONDS * 2**server.failures, LONGEST_PAUSE_SECONDS)
            server.failures = min(server.failures + 1, 10)
            server.paused_until = self._clock.time() + spread(pause, self._draw)

    def worked(self, url: str) -> None:
        """Clear the failures of a server that has answered."""
        server = self._find(url)
        if server is not None:
            server.failures, server.paused_until = 0, 0.0

    def _find(self, url: str) -> _Upstream | None:
        return next((server for server in self._servers if server.url == url), None)
