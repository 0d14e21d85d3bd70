"""Measure the waits at one limiter."""

from collections.abc import Callable
from time import monotonic

from proxy.telemetry.durations import Durations


class LimiterMetrics:
    """The observer of a limiter (`limiter.observer.LimiterObserver`): keeps its wait times in milliseconds.

    Counts are read from the limiter's own statistics. As in upstream's proxy a wait that timed out is a sample too;
    unlike there it is not cut to whole milliseconds, so sums are exact.
    """

    __slots__ = ("served_waiters", "wait_millis")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.wait_millis = Durations(clock)
        self.served_waiters = 0

    def granted(self, wait_seconds: float) -> None:
        """Count the wait for a permit that was granted."""
        self.wait_millis.add(wait_seconds * 1000)
        if wait_seconds > 0:
            self.served_waiters += 1

    def timed_out(self, wait_seconds: float) -> None:
        """Count the wait for a permit that timed out."""
        self.wait_millis.add(wait_seconds * 1000)

    def queued(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def rejected(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def cancelled(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def updated(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def released(self) -> None:
        """Skip: the limiter's statistics have this count."""
