"""Log buckets of microseconds: which bucket a wait is in, and quantiles of what is in them. No pyspark here.

Rule: eight buckets to the power of two, `floor(8 log2 us)`, and one of its own, -1, for no wait at all. So whatever is
said of a bucket is within 9 % of every wait in it (4.5 % by its middle), and histograms merge by adding counts, in any
order. The same definition as Spark columns is in histograms.py.
"""

from collections.abc import Iterable, Mapping
from math import ceil, floor, log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.replay.buckets import PER_OCTAVE

__all__ = ["NO_WAIT", "TINY", "bucket_of", "buckets_of", "merged", "middle_us", "quantile_us"]

NO_WAIT: Final = -1
# Libraries differ in the last bit of log2, and 8 log2 of a power of two must not fall below its whole number. The
# other edges are irrational: up to half a day no wait is within this of one.
TINY: Final = 1e-11


def bucket_of(us: int) -> int:
    """Give the bucket of a wait in microseconds; what is not positive is no wait."""
    return floor(PER_OCTAVE * log2(us) + TINY) if us > 0 else NO_WAIT


def buckets_of(us: NDArray[np.int64]) -> NDArray[np.int32]:
    """Give the buckets of many waits."""
    waited = us > 0
    powers = np.log2(np.where(waited, us, 1).astype(np.float64))
    return np.where(waited, np.floor(PER_OCTAVE * powers + TINY), NO_WAIT).astype(np.int32)


def middle_us(bucket: int) -> float:
    """Give the wait that stands for a bucket: the geometric middle, at most 4.5 % off any in it."""
    return 0.0 if bucket == NO_WAIT else float(2 ** ((bucket + 0.5) / PER_OCTAVE))


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Add histograms up."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def quantile_us(histogram: Mapping[int, int], share: float) -> float | None:
    """Give the wait that `share` of all (0 < share <= 1) did not exceed, by nearest rank; None if nobody is there."""
    if not 0 < share <= 1:
        raise ValueError(f"got a share of {share}, expected more than 0 and at most 1")
    # 0.07 * 100 is a little more than 7 in binary, and its ceiling must not be 8.
    rank = ceil(share * sum(histogram.values()) - TINY)
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= rank > 0:
            return middle_us(bucket)
    return None
