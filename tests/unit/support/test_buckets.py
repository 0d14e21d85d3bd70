from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.buckets import NO_WAIT
from tests.support.pipeline.buckets import bucket_of, middle_us

waits = st.integers(0, 9 * 3600 * 1_000_000)


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


@given(waits.filter(bool))
def test_middle_is_within_four_and_a_half_percent(us: int) -> None:
    assert abs(middle_us(bucket_of(us)) / us - 1) < 0.045
