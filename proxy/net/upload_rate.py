"""Measure how fast a client sends: only the time in which this proxy waits for the client counts.

No I/O, no clock of its own.
"""

from typing import Final

from proxy.net.write_watch import RATE_WINDOW_SECONDS

_MARK_SECONDS: Final = 2.0


class UploadRate:
    """The bytes that a client has sent, and the seconds in which the proxy waited for them."""

    __slots__ = ("_marks", "_since", "_waited_seconds", "size")

    def __init__(self) -> None:
        self.size = 0
        self._waited_seconds = 0.0
        self._since: float | None = None
        self._marks = [(0.0, 0)]

    @property
    def awaited(self) -> bool:
        """Return whether the proxy waits for the client now."""
        return self._since is not None

    def started(self, now: float) -> None:
        """Start the clock: the proxy waits for the client."""
        self._since = now

    def received(self, now: float, size: int) -> None:
        """Stop the clock, and count the bytes that have arrived, if any."""
        self._waited_seconds, self._since = self.waited_seconds(now), None
        self.size += size
        if size and self._waited_seconds - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((self._waited_seconds, self.size))

    def waited_seconds(self, now: float) -> float:
        """Return the seconds in which the proxy has waited for the client."""
        return self._waited_seconds + (now - self._since if self._since is not None else 0.0)

    def rate(self, now: float) -> float | None:
        """Return the bytes per second of the last ten seconds of waiting; None before ten seconds."""
        waited, marks = self.waited_seconds(now), self._marks
        while len(marks) > 1 and marks[1][0] <= waited - RATE_WINDOW_SECONDS:
            del marks[0]
        began, before = marks[0]
        if waited - began < RATE_WINDOW_SECONDS:
            return None
        return (self.size - before) / (waited - began)
