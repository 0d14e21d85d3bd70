"""The line through a series of measurements, and how steep the line may really be.

Neighbouring samples of a process's memory resemble each other, so that their number says too much of what is known.
The samples are put together in blocks, and what the blocks still have in common with their neighbours is charged by
the usual correction of the effective number, n (1 - r) / (1 + r). Knows neither clocks nor processes.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, sqrt
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

BLOCKS: Final = 45
CONFIDENCE: Final = 0.95


class Slope(NamedTuple):
    """Growth in units an hour: by least squares, and what it is at most with 95 % confidence (one-sided)."""

    per_hour: float
    at_most: float
    blocks: int
    effective: float


def slope(hours: Sequence[float], values: Sequence[float], blocks: int = BLOCKS) -> Slope:
    """Return the growth of `values`, measured at `hours`; the bound is infinite with fewer than five blocks."""
    points = list(_blocks(hours, values, min(blocks, len(hours))))
    times, means = [at for at, _ in points], [value for _, value in points]
    count = len(points)
    if count < 5:
        return Slope(0.0, inf, count, float(count))
    middle, level = fmean(times), fmean(means)
    spread = sum((at - middle) ** 2 for at in times)
    growth = sum((at - middle) * (value - level) for at, value in points) / spread
    left = [value - level - growth * (at - middle) for at, value in points]
    effective = max(4.0, count * (1 - (r := max(0.0, _resemblance(left)))) / (1 + r))
    # The variance of the residuals, and of the line through them, with the effective number of blocks.
    error = sqrt(sum(each * each for each in left) / count * effective / (effective - 2) / spread * count / effective)
    return Slope(growth, growth + student(CONFIDENCE, effective - 2) * error, count, effective)


def student(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t by the expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _blocks(hours: Sequence[float], values: Sequence[float], blocks: int) -> list[tuple[float, float]]:
    edges = [len(hours) * number // blocks for number in range(blocks + 1)] if blocks else []
    pairs = pairwise(edges)
    return [(fmean(hours[begin:end]), fmean(values[begin:end])) for begin, end in pairs]


def _resemblance(left: Sequence[float]) -> float:
    """Return the correlation of each value with its neighbour."""
    whole = sum(each * each for each in left)
    return sum(a * b for a, b in pairwise(left)) / whole if whole else 0.0
