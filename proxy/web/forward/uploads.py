"""Measure the upload of a request, so that a silent or slow one can be ended.

Rules: only the time in which this proxy waits for the client counts, never the broker's time. A silent upload ends
after the stall time-out; a slow one only while other requests wait for its place (`places.py`). No I/O, no
clock of its own.
"""

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from proxy.net.upload_rate import UploadRate
from proxy.net.write_watch import WriteLimits
from proxy.web.http.errors import HttpRefused

_STALL_KEY: Final = "topicListWriteStallTimeoutMillis"
_RATE_KEY: Final = "topicListWriteMinBytesPerSecond"


class Sample(NamedTuple):
    """The bytes that a client has taken or sent in how many seconds, and those it still has to take.

    `of` is the stream that was measured.
    """

    of: object
    seconds: float
    moved_bytes: int
    pending_bytes: int


class Upload(UploadRate):
    """The bytes of a client's upload, and the seconds in which the proxy waited for them.

    `limits` returns the limits in force, the same as for slow readers.
    """

    __slots__ = ("_limits", "_stop", "too_slow")

    def __init__(self, limits: Callable[[], WriteLimits]) -> None:
        super().__init__()
        self.too_slow = False
        self._limits = limits
        self._stop: Callable[[], None] | None = None

    @property
    def stall_seconds(self) -> float | None:
        """Return the time after which a silent upload ends; None for never."""
        return self._limits().stall_seconds or None

    def wait(self, now: float, stop: Callable[[], None]) -> None:
        """Start the clock: the proxy waits for the client; `stop` ends the wait."""
        self.started(now)
        self._stop = stop

    def received(self, now: float, size: int) -> None:
        """Stop the clock, and count the bytes that have arrived, if any."""
        super().received(now, size)
        self._stop = None

    def sample(self, now: float) -> Sample | None:
        """Return what has come in how many seconds; None while the proxy does not wait for the client."""
        return Sample(self, self.waited_seconds(now), self.size, sys.maxsize) if self.awaited else None

    def stop(self) -> None:
        """End the upload because of its rate."""
        if self._stop is not None:
            self.too_slow = True
            self._stop()

    @property
    def refusal(self) -> HttpRefused:
        """Return the error for the client of an upload that was ended."""
        if self.too_slow:
            reason = f"the request's body comes too slowly while others wait ({_RATE_KEY})"
        else:
            reason = f"nothing came of the request's body for too long ({_STALL_KEY})"
        return HttpRefused(408, reason, "slow_upload", close=True)
