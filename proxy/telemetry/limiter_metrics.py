"""Measure the waits at one limiter."""

from collections.abc import Callable
from time import monotonic

from proxy.telemetry.durations import Durations


class LimiterMetrics:
    """The observer of one limiter (`limiter.observer.LimiterObserver`): keeps its wait times, milliseconds.

    Counts are read from the limiter's own statistics. As in upstream's proxy a wait that timed out is a
    sample too; unlike there it is not cut to whole milliseconds, so sums are exact.
    """

    __slots__ = ("served_waiters", "wait_millis")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.wait_millis = Durations(clock)
        self.served_waiters = 0

    def granted(self, wait_seconds: float) -> None:
        """Take the wait of a permit that was given."""
        self.wait_millis.add(wait_seconds * 1000)
        if wait_seconds > 0:
            self.served_waiters += 1

    def timed_out(self, wait_seconds: float) -> None:
        """Take the wait of a request that was given nothing."""
        self.wait_millis.add(wait_seconds * 1000)

    def queued(self) -> None:
        """Pass over: the statistics count it."""

    def rejected(self) -> None:
        """Pass over: the statistics count it."""

    def cancelled(self) -> None:
        """Pass over: the statistics count it."""

    def updated(self) -> None:
        """Pass over: the statistics count it."""

    def released(self) -> None:
        """Pass over: the statistics count it."""
