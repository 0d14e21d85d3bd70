"""Measure the uploads that hold connections to web services, and end slow ones while others wait for a connection.

Rules: only the time in which this proxy waits for the client counts, never the broker's time. The minimum rate applies
only while other requests wait for a connection to the same server; the slowest uploads end first. No I/O, no clock of
its own.
"""

from collections.abc import Callable
from typing import Final

from proxy.net.upload_rate import UploadRate
from proxy.net.write_watch import WriteLimits
from proxy.web.http.errors import HttpRefused

Server = tuple[str, int | None]
_STALL_KEY: Final = "topicListWriteStallTimeoutMillis"
_RATE_KEY: Final = "topicListWriteMinBytesPerSecond"


class Upload(UploadRate):
    """The bytes of a client's upload, and the seconds in which the proxy waited for them."""

    __slots__ = ("_stop", "server", "too_slow")

    def __init__(self) -> None:
        super().__init__()
        self.server: Server = ("", None)
        self.too_slow = False
        self._stop: Callable[[], None] | None = None

    def wait(self, now: float, stop: Callable[[], None]) -> None:
        """Start the clock: the proxy waits for the client; `stop` ends the wait."""
        self.started(now)
        self._stop = stop

    def received(self, now: float, size: int) -> None:
        """Stop the clock, and count the bytes that have arrived, if any."""
        super().received(now, size)
        self._stop = None

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


class Uploads:
    """The uploads that the proxy waits for; `limits` returns the limits in force, the same as for slow readers."""

    def __init__(self, limits: Callable[[], WriteLimits]) -> None:
        self._limits = limits
        self._waiting: set[Upload] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def stall_seconds(self) -> float | None:
        """Return the time after which a silent upload ends; None for never."""
        return self._limits().stall_seconds or None

    def wait(self, upload: Upload, now: float, stop: Callable[[], None]) -> None:
        """Start to wait for the client of `upload`."""
        upload.wait(now, stop)
        self._waiting.add(upload)

    def received(self, upload: Upload, now: float, size: int) -> None:
        """Stop waiting for the client of `upload`, and count its bytes."""
        self._waiting.discard(upload)
        upload.received(now, size)

    def make_room(self, server: Server, most: int, now: float) -> int:
        """End up to `most` of the slowest uploads to `server` that are below the minimum rate; return how many."""
        least = self._limits().min_bytes_per_second
        rates = ((upload.rate(now), upload) for upload in self._waiting if upload.server == server)
        slow = sorted(
            ((rate, upload) for rate, upload in rates if rate is not None and rate < least), key=lambda each: each[0]
        )[:most]
        for _, upload in slow:
            self._waiting.discard(upload)
            upload.stop()
        return len(slow)
