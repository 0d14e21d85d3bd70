"""The counters behind a semaphore's statistics, and whom they tell.

Who is told is called after the state has changed, never before, must be quick, and must not call back into the
semaphore. An exception is counted and goes no further. This module knows no metrics library.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["EventCounter", "WaitObserver", "waits_of"]

# Called for each acquire and growth that was booked, or whose deadline passed: with the seconds that it waited, and
# whether it was booked.
WaitObserver: TypeAlias = Callable[[float, bool], object]


class EventCounter:
    """Counters of a semaphore's events since its construction."""

    __slots__ = ("cancelled", "granted", "observer", "observer_errors", "on_wait", "queued", "rejected", "timed_out")

    def __init__(self, observer: WaitObserver | None) -> None:
        self.observer = observer
        # Called when an acquire or a growth begins to wait.
        self.on_wait: list[Callable[[], None]] = []
        self.queued = self.granted = self.timed_out = self.rejected = self.cancelled = 0
        self.observer_errors = 0

    def count_queued(self) -> None:
        """Count a request that has to wait."""
        self.queued += 1
        for callback in self.on_wait:
            self._notify(callback)

    def count_granted(self, wait_seconds: float) -> None:
        """Count an acquire or a growth that was booked; 0.0 without a wait."""
        self.granted += 1
        if self.observer is not None:
            self._notify(self.observer, wait_seconds, True)

    def count_timed_out(self, wait_seconds: float) -> None:
        """Count a deadline that passed."""
        self.timed_out += 1
        if self.observer is not None:
            self._notify(self.observer, wait_seconds, False)

    def _notify(self, event: Callable[..., object], *arguments: Any) -> None:
        try:
            event(*arguments)
        except Exception:
            self.observer_errors += 1


def waits_of(observer: WaitObserver | None) -> WaitObserver | None:
    """Return an observer that passes on the waits only."""
    return observer and (lambda seconds, served: (seconds or not served) and observer(seconds, served))
