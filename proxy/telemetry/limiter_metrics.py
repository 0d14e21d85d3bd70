"""Measure the waits at one limiter."""

from collections.abc import Callable
from time import monotonic

from proxy.telemetry.durations import Durations


class LimiterMetrics:
    """Keeps the wait times of a limiter in milliseconds; `waited` is its observer.

    Counts are read from the limiter's own statistics. As in upstream's proxy a wait that timed out is a sample too;
    unlike there it is not cut to whole milliseconds, so sums are exact.
    """

    __slots__ = ("served_waiters", "wait_millis")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.wait_millis = Durations(clock)
        self.served_waiters = 0

    def waited(self, seconds: float, served: bool) -> None:
        """Count the wait for a permit, which was `served`, or timed out."""
        self.wait_millis.add(seconds * 1000)
        if served and seconds > 0:
            self.served_waiters += 1
