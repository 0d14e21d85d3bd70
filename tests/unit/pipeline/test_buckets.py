import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.transforms.buckets import NO_WAIT, bucket_of, buckets_of, merged, middle_us, quantile_us

waits = st.integers(0, 9 * 3600 * 1_000_000)
histograms = st.dictionaries(st.integers(-1, 270), st.integers(1, 1000))


def smallest_of(bucket: int) -> int:
    """Find the smallest whole number of a bucket with whole numbers alone."""
    low, high = 1, 1 << (bucket // 8 + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**8 >= 1 << bucket else (middle + 1, high)
    return low


def test_buckets_begin_where_whole_numbers_say() -> None:
    for bucket in range(8 * 35):
        first = smallest_of(bucket)
        assert bucket_of(first) >= bucket
        assert bucket_of(first - 1) < bucket


def test_no_wait_has_a_bucket_of_its_own() -> None:
    assert bucket_of(0) == NO_WAIT
    assert bucket_of(1) == 0
    assert middle_us(NO_WAIT) == 0.0


@given(st.lists(waits))
def test_arrays_and_numbers_have_the_same_buckets(found: list[int]) -> None:
    assert buckets_of(np.array(found, dtype=np.int64)).tolist() == [bucket_of(us) for us in found]


@given(waits.filter(bool))
def test_middle_is_within_four_and_a_half_percent(us: int) -> None:
    assert abs(middle_us(bucket_of(us)) / us - 1) < 0.045


@given(histograms, histograms, histograms)
def test_merging_does_not_depend_on_the_order(a: dict[int, int], b: dict[int, int], c: dict[int, int]) -> None:
    assert merged([merged([a, b]), c]) == merged([a, merged([c, b])]) == merged([c, b, a])


@given(st.lists(waits, min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_quantile_is_near_the_exact_one(found: list[int], share: float) -> None:
    histogram = merged({bucket_of(us): 1} for us in found)
    exact = float(np.quantile(found, share, method="inverted_cdf"))
    assert quantile_us(histogram, share) == pytest.approx(exact, rel=0.045)


def test_quantile_of_a_hundred_is_the_ninety_ninth() -> None:
    assert quantile_us({8: 99, 80: 1}, 0.99) == middle_us(8)


def test_share_that_binary_makes_a_little_larger_takes_no_further_rank() -> None:
    # 0.07 * 100 is 7.000000000000001.
    assert quantile_us({8: 7, 80: 93}, 0.07) == middle_us(8)


def test_quantile_of_nobody_is_none() -> None:
    assert quantile_us({}, 0.5) is None


def test_quantile_refuses_a_share_of_none() -> None:
    with pytest.raises(ValueError, match=r"got a share of 0, expected more than 0"):
        quantile_us({1: 1}, 0)
