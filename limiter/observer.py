"""Own what the outside may see of a semaphore: the observer's calls, and the counters.

An observer hears of things after the books have changed, never before; whatever it raises is counted and goes
no further. This module knows no metrics library.
"""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["EventCounter", "LimiterObserver"]


class LimiterObserver(Protocol):
    """Calls that a semaphore makes, synchronously, in the order in which things happen.

    An observer must be quick and must not call back into the semaphore.
    """

    def queued(self) -> None:
        """Hear that an acquire or a growth has begun to wait."""

    def granted(self, wait_seconds: float) -> None:
        """Hear that an acquire or a growth was booked; 0.0 when it did not wait."""

    def timed_out(self, wait_seconds: float) -> None:
        """Hear that the deadline of an acquire or a growth passed."""

    def rejected(self) -> None:
        """Hear that the queue was full."""

    def cancelled(self) -> None:
        """Hear that one who asked left before it took what it asked for."""

    def updated(self) -> None:
        """Hear that a permit changed its size, in either direction; a growth is also `granted`."""

    def released(self) -> None:
        """Hear that a permit has ended."""


class EventCounter:
    """Count what happens and pass it on to the observer, if there is one."""

    __slots__ = ("cancelled", "granted", "observer", "observer_errors", "queued", "rejected", "timed_out")

    def __init__(self, observer: LimiterObserver | None) -> None:
        self.observer = observer
        self.queued = self.granted = self.timed_out = self.rejected = self.cancelled = 0
        self.observer_errors = 0

    def count_queued(self) -> None:
        """Count one more that had to wait."""
        self.queued += 1
        if self.observer is not None:
            self._notify(self.observer.queued)

    def count_granted(self, wait_seconds: float) -> None:
        """Count an acquire or a growth that was booked."""
        self.granted += 1
        if self.observer is not None:
            self._notify(self.observer.granted, wait_seconds)

    def count_timed_out(self, wait_seconds: float) -> None:
        """Count a deadline that passed."""
        self.timed_out += 1
        if self.observer is not None:
            self._notify(self.observer.timed_out, wait_seconds)

    def count_rejected(self) -> None:
        """Count a refusal by a full queue."""
        self.rejected += 1
        if self.observer is not None:
            self._notify(self.observer.rejected)

    def count_cancelled(self) -> None:
        """Count one that left."""
        self.cancelled += 1
        if self.observer is not None:
            self._notify(self.observer.cancelled)

    def note_updated(self) -> None:
        """Pass a change of size on."""
        if self.observer is not None:
            self._notify(self.observer.updated)

    def note_released(self) -> None:
        """Pass a release on."""
        if self.observer is not None:
            self._notify(self.observer.released)

    def _notify(self, event: Callable[..., None], *arguments: Any) -> None:
        try:
            event(*arguments)
        except Exception:
            self.observer_errors += 1
