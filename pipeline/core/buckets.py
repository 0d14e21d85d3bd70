"""Waits by length: 8 buckets to each power of two, so that a quantile is at most 9 % off; sums of counts merge.

Position 0 counts waits of nothing, position 1 + b those of `floor(8 * log2(us)) == b`. The edges are whole numbers
found with whole numbers: two implementations must not differ by a rounding of a logarithm. Tables have the bucket
`floor(8 * log2(us))`, as Spark columns in `pipeline/transforms/histograms.py`, and `NO_WAIT`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

PER_OCTAVE: Final = 8
NO_WAIT: Final = -1
# Libraries differ in the last bit of log2, and 8 log2 of a power of two must not fall below its whole number. The
# other edges are irrational: up to half a day no wait is within this of one.
TINY: Final = 1e-11
OCTAVES: Final = 48  # 2**48 us are nine years; what is longer counts in the last bucket
BUCKETS: Final = 1 + PER_OCTAVE * OCTAVES


def _edge(bucket: int) -> int:
    """Return the smallest whole number whose eighth power is at least 2**bucket."""
    low, high = 0, 1 << (bucket // PER_OCTAVE + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**PER_OCTAVE >= 1 << bucket:
            high = middle
        else:
            low = middle + 1
    return low


EDGES: Final = np.array([0, *map(_edge, range(PER_OCTAVE * OCTAVES))], np.int64)


def count_waits(waits_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count waits by length; returns an array of `BUCKETS` counts."""
    return np.bincount(np.searchsorted(EDGES, waits_us, side="right") - 1, minlength=BUCKETS).astype(np.int64)


def quantile(counts: NDArray[np.int64], share: float) -> float:
    """Return the wait, in us, that `share` of the counted ones do not exceed: the middle of its bucket, by ratio."""
    total = int(counts.sum())
    if not total:
        return 0.0
    rank = max(1, int(np.ceil(share * total)))
    position = int(np.searchsorted(np.cumsum(counts), rank))
    return 0.0 if position == 0 else float(2.0 ** ((position - 0.5) / PER_OCTAVE))
