import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry.durations import RELATIVE_ERROR, Durations, QuantileSketch

FRACTIONS = (0.0, 0.5, 0.95, 0.99, 1.0)


def exact(samples: list[float], fraction: float) -> float:
    return float(np.quantile(samples, fraction, method="inverted_cdf"))


def sketch_of(samples: list[float]) -> QuantileSketch:
    sketch = QuantileSketch()
    for sample in samples:
        sketch.add(sample)
    return sketch


def assert_close(sketch: QuantileSketch, samples: list[float]) -> None:
    for fraction, found in zip(FRACTIONS, sketch.quantiles(*FRACTIONS), strict=True):
        assert found == pytest.approx(exact(samples, fraction), rel=RELATIVE_ERROR * 1.0001, abs=1e-3)


durations = st.one_of(st.just(0.0), st.floats(min_value=1e-3, max_value=1e9))


@given(st.lists(durations, min_size=1, max_size=200))
def test_each_quantile_is_within_one_percent_of_the_sorted_samples(samples: list[float]) -> None:
    assert_close(sketch_of(samples), samples)


def test_the_largest_sample_is_exact_beyond_the_range_too() -> None:
    assert sketch_of([1.0, 25_003.7]).quantiles(1.0) == [25_003.7]
    assert sketch_of([3e12]).quantiles(0.5, 1.0) == [3e12, 3e12]


def test_nothing_counted_is_no_number() -> None:
    assert all(math.isnan(value) for value in QuantileSketch().quantiles(0.5, 1.0))


def test_what_is_told_apart_is_bounded_whatever_is_counted() -> None:
    chance = random.Random(7)
    sketch = sketch_of([10 ** chance.uniform(-12, 12) for _ in range(50_000)])
    assert len({*sketch.quantiles(*(number / 20_000 for number in range(20_001)))}) < 1500


@given(st.lists(st.tuples(st.floats(0, 200), durations), min_size=1, max_size=60))
def test_the_window_has_the_quantiles_of_the_samples_in_it(steps: list[tuple[float, float]]) -> None:
    now, slice_seconds = 1000.0, 120.0
    sliding = Durations(lambda: now, window_seconds=5 * slice_seconds, slices=5)
    taken: list[tuple[int, float]] = []
    for seconds, value in steps:
        now += seconds
        sliding.add(value)
        taken.append((int((now - 1000.0) // slice_seconds), value))
    window = [value for number, value in taken if number > taken[-1][0] - 5]
    for fraction, found in zip(FRACTIONS, sliding.quantiles(*FRACTIONS), strict=True):
        assert found == pytest.approx(exact(window, fraction), rel=RELATIVE_ERROR * 1.0001, abs=1e-3)
    assert sliding.count == len(steps)


def test_a_long_silence_empties_the_window_and_time_goes_on() -> None:
    now = 1000.0
    sliding = Durations(lambda: now, window_seconds=600, slices=5)
    sliding.add(100.0)
    now += 1_000_000
    sliding.add(7.0)
    assert sliding.quantiles(0.5, 1.0) == [7.0, 7.0]
    now += 600
    assert math.isnan(sliding.quantiles(0.5)[0])
