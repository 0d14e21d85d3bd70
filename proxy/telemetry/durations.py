"""Durations counted twice: quantiles of the last minutes for Prometheus, buckets since the start for OTLP.

Rule: one call on the hot path counts both, at 0.9 us (ADR 18). A quantile is within 1 % of the true quantile of the
same samples, and the largest sample is exact. Logarithmic buckets keep a sketch below some 1,400 integers for any
samples, and sketches can be added. The clock is injected; the module imports no metrics library.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

# Upper bounds in seconds: from unnoticeable waits to the client's own time-out of 30 s (PIP-442's waits end at 25 s).
BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 30.0, 60.0)
_BOUNDS_MILLIS: Final = tuple(bound * 1000 for bound in BOUNDS_SECONDS)

RELATIVE_ERROR = 0.01
_SMALLEST = 1e-3  # smaller samples count as zero
_LARGEST = 1e9  # larger samples count as this value; the maximum stays exact
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG = 1 / math.log(_GROWTH)
# The value whose relative distance to both ends of bucket 0 is equal.
_MIDDLE = 2 / (1 + _GROWTH)


class QuantileSketch:
    """Counts samples in logarithmic buckets (as DDSketch does); samples must not be negative."""

    __slots__ = ("_buckets", "_zeros", "count", "largest")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._zeros = 0
        self.count = 0
        self.largest = 0.0

    def add(self, value: float) -> None:
        """Count a sample."""
        self.count += 1
        if value > self.largest:
            self.largest = value
        if value < _SMALLEST:
            self._zeros += 1
            return
        bucket = math.ceil(math.log(value if value < _LARGEST else _LARGEST) * _PER_LOG)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def merge(self, other: "QuantileSketch") -> None:
        """Add the counts of another sketch."""
        self.count += other.count
        self.largest = max(self.largest, other.largest)
        self._zeros += other._zeros
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def quantiles(self, *fractions: float) -> list[float]:
        """Return the sample at each fraction (ascending, 0 to 1); NaN without samples.

        The sample at `q` has the rank ceil(q * count), so 1.0 is exactly the largest sample.
        """
        if not self.count:
            return [math.nan] * len(fractions)
        ordered = iter(sorted(self._buckets.items()))
        found: list[float] = []
        passed, value = self._zeros, 0.0
        for fraction in fractions:
            rank = max(1, math.ceil(fraction * self.count))
            while passed < rank:
                bucket, count = next(ordered)
                passed += count
                value = _MIDDLE * _GROWTH**bucket
            found.append(self.largest if rank == self.count else min(value, self.largest))
        return found


class Durations:
    """Durations in milliseconds: quantiles of the last `window_seconds`; count, total and buckets since the start.

    `buckets[i]` counts durations up to `BOUNDS_SECONDS[i]`, the last bucket all above. The window is dropped slice by
    slice, so it is between `window_seconds` less one slice and `window_seconds` long.
    """

    __slots__ = ("_clock", "_slice_ends", "_slice_seconds", "_slices", "buckets", "count", "total")

    def __init__(self, clock: Callable[[], float], window_seconds: float = 600.0, slices: int = 5) -> None:
        self._clock = clock
        self._slice_seconds = window_seconds / slices
        self._slices = [QuantileSketch() for _ in range(slices)]
        self._slice_ends = clock() + self._slice_seconds
        self.count = 0
        self.total = 0.0
        self.buckets = [0] * (len(_BOUNDS_MILLIS) + 1)

    def add(self, value: float) -> None:
        """Count a duration in milliseconds, at the clock's time."""
        now = self._clock()
        if now >= self._slice_ends:
            self._turn(now)
        self.count += 1
        self.total += value
        self._slices[-1].add(value)
        self.buckets[bisect_left(_BOUNDS_MILLIS, value)] += 1

    def quantiles(self, *fractions: float) -> list[float]:
        """Return the quantiles of the window (see `QuantileSketch.quantiles`)."""
        now = self._clock()
        if now >= self._slice_ends:
            self._turn(now)
        whole = QuantileSketch()
        for part in self._slices:
            whole.merge(part)
        return whole.quantiles(*fractions)

    def _turn(self, now: float) -> None:
        """Replace the slices that the window has left."""
        steps = 1 + int((now - self._slice_ends) // self._slice_seconds)
        fresh = min(steps, len(self._slices))
        self._slices = self._slices[fresh:] + [QuantileSketch() for _ in range(fresh)]
        self._slice_ends += steps * self._slice_seconds
