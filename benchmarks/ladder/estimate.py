"""Owns how a ratio is estimated: pairs in, median and interval out; no clock, no randomness that differs by run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A median with the range of all samples and a bootstrap interval of the median."""

    median: float
    least: float
    most: float
    low95: float
    high95: float
    samples: int

    def as_json(self) -> dict[str, float | int]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def estimate(samples: Sequence[float]) -> Estimate:
    """Estimate the median of samples that are not empty; a fixed seed makes the interval reproducible."""
    if not samples:
        raise ValueError("got no samples, expected at least one")
    seeded = random.Random(1)
    medians = sorted(median(seeded.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    return Estimate(
        median=median(samples),
        least=min(samples),
        most=max(samples),
        low95=medians[int(0.025 * RESAMPLES)],
        high95=medians[int(0.975 * RESAMPLES) - 1],
        samples=len(samples),
    )


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Estimate the ratio of runs that took place next to each other: pair by pair, never mean by mean."""
    return estimate([over / under for over, under in zip(numerators, denominators, strict=True)])
