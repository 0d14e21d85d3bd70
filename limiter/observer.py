"""The calls that an observer of a semaphore gets, and the counters behind the semaphore's statistics.

An observer is called after the state has changed, never before. An exception of an observer is counted and goes no
further. This module knows no metrics library.
"""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["EventCounter", "LimiterObserver"]


class LimiterObserver(Protocol):
    """Calls that a semaphore makes synchronously, in the order of events.

    An observer must be quick and must not call back into the semaphore.
    """

    def queued(self) -> None:
        """Called when an acquire or a growth begins to wait."""

    def granted(self, wait_seconds: float) -> None:
        """Called when an acquire or a growth was booked; 0.0 without a wait."""

    def timed_out(self, wait_seconds: float) -> None:
        """Called when the deadline of an acquire or a growth passed."""

    def rejected(self) -> None:
        """Called when a full queue refused an acquire."""

    def cancelled(self) -> None:
        """Called when a request was cancelled before its task took the grant."""

    def updated(self) -> None:
        """Called when a permit changed its size, in either direction; a growth is also `granted`."""

    def released(self) -> None:
        """Called when a permit was released."""


class EventCounter:
    """Counters of a semaphore's events since its construction, passed on to the observer, if there is one."""

    __slots__ = (
        "cancelled",
        "granted",
        "observer",
        "observer_errors",
        "on_wait",
        "queued",
        "rejected",
        "timed_out",
    )

    def __init__(self, observer: LimiterObserver | None) -> None:
        self.observer = observer
        self.on_wait: list[Callable[[], None]] = []
        self.queued = self.granted = self.timed_out = self.rejected = self.cancelled = 0
        self.observer_errors = 0

    def count_queued(self) -> None:
        """Count a request that has to wait."""
        self.queued += 1
        if self.observer is not None:
            self._notify(self.observer.queued)
        for callback in self.on_wait:
            self._notify(callback)

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
        """Count a cancelled request."""
        self.cancelled += 1
        if self.observer is not None:
            self._notify(self.observer.cancelled)

    def note_updated(self) -> None:
        """Pass on a change of size."""
        if self.observer is not None:
            self._notify(self.observer.updated)

    def note_released(self) -> None:
        """Pass on a release."""
        if self.observer is not None:
            self._notify(self.observer.released)

    def _notify(self, event: Callable[..., None], *arguments: Any) -> None:
        try:
            event(*arguments)
        except Exception:
            self.observer_errors += 1
