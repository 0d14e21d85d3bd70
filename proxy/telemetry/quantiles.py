"""Quantiles of a stream of durations, in bounded memory and over the last minutes only.

Rule: a quantile is within 1 % of the true one of the same samples, and the largest sample is exact. Counting
into logarithmic buckets keeps a sketch to some 1,400 integers whatever it has seen, and two sketches add up.
The clock is injected; the module knows no metrics library.
"""

import math
from collections.abc import Callable

RELATIVE_ERROR = 0.01
_SMALLEST = 1e-3  # below it a sample counts as zero
_LARGEST = 1e9  # above it a sample is counted as that much; the maximum stays exact
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG = 1 / math.log(_GROWTH)
# The value that is equally far, in relation, from both ends of bucket 0.
_MIDDLE = 2 / (1 + _GROWTH)


class QuantileSketch:
    """Counts of samples by logarithmic bucket; samples must not be negative."""

    __slots__ = ("_buckets", "_zeros", "count", "largest")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._zeros = 0
        self.count = 0
        self.largest = 0.0

    def add(self, value: float) -> None:
        """Count one sample."""
        self.count += 1
        if value > self.largest:
            self.largest = value
        if value < _SMALLEST:
            self._zeros += 1
            return
        bucket = math.ceil(math.log(value if value < _LARGEST else _LARGEST) * _PER_LOG)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def merge(self, other: "QuantileSketch") -> None:
        """Count all samples of another sketch too."""
        self.count += other.count
        self.largest = max(self.largest, other.largest)
        self._zeros += other._zeros
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def quantiles(self, *fractions: float) -> list[float]:
        """Give the sample at each fraction (ascending, 0 to 1); NaN when nothing was counted.

        The sample at `q` is the one with rank ceil(q * count), so 1.0 is the largest, exactly.
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


class SlidingQuantiles:
    """The sketch of the last `window_seconds`, dropped slice by slice, and the sums of all time.

    The window is between `window_seconds` less one slice and `window_seconds` long.
    """

    __slots__ = ("_clock", "_slice_ends", "_slice_seconds", "_slices", "count", "total")

    def __init__(self, clock: Callable[[], float], window_seconds: float = 600.0, slices: int = 5) -> None:
        self._clock = clock
        self._slice_seconds = window_seconds / slices
        self._slices = [QuantileSketch() for _ in range(slices)]
        self._slice_ends = clock() + self._slice_seconds
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one sample now."""
        now = self._clock()
        if now >= self._slice_ends:
            self._turn(now)
        self.count += 1
        self.total += value
        self._slices[-1].add(value)

    def quantiles(self, *fractions: float) -> list[float]:
        """Give the quantiles of the window (see `QuantileSketch.quantiles`)."""
        now = self._clock()
        if now >= self._slice_ends:
            self._turn(now)
        whole = QuantileSketch()
        for part in self._slices:
            whole.merge(part)
        return whole.quantiles(*fractions)

    def _turn(self, now: float) -> None:
        """Drop as many slices as time has passed."""
        steps = 1 + int((now - self._slice_ends) // self._slice_seconds)
        fresh = min(steps, len(self._slices))
        self._slices = self._slices[fresh:] + [QuantileSketch() for _ in range(fresh)]
        self._slice_ends += steps * self._slice_seconds
