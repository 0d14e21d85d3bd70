"""The token bucket: never more than the rate allows, for any changes of the rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.relay.topic_slots import BYTES_FLOOR, CAPACITY_SECONDS
from tests.support.native import offered

# A bucket that ran dry is ready again with the tokens of this long (`native/src/relay/slots.rs`).
READY_SECONDS = 0.016
rates = st.floats(1.0, 1e9)
steps = st.lists(
    st.tuples(
        st.floats(0.0, 20.0), st.sampled_from(["take", "take", "rate", "none"]), rates, st.integers(1, 5_000_000)
    ),
    max_size=60,
)


@given(rates, steps)
def test_no_more_passes_than_rate_and_capacity_allow(rate: float, actions: list[tuple[float, str, float, int]]) -> None:
    """Who asks before each debit passes no more than tokens that came; the last debit may leave a debt."""
    bucket, now, allowed, passed = offered("TokenBucket")(BYTES_FLOOR), 50.0, 0.0, 0
    bucket.set_rate(rate, now)
    capacity = max(CAPACITY_SECONDS * rate, BYTES_FLOOR)
    for seconds, action, other, size in actions:
        now, allowed = now + seconds, allowed + rate * seconds
        if action == "rate":
            rate, capacity = other, max(capacity, CAPACITY_SECONDS * other)
            bucket.set_rate(rate, now)
        elif action == "none":
            # At once back: tokens and debt are as before.
            bucket.set_rate(None, now)
            bucket.set_rate(rate, now)
        elif bucket.ready_at(now) <= now:
            assert passed <= allowed + capacity + 1e-3
            bucket.take(size, now)
            passed += size


@given(rates, st.integers(1, 10_000_000))
def test_a_bucket_is_ready_with_the_tokens_of_sixteen_milliseconds(rate: float, size: int) -> None:
    bucket, now = offered("TokenBucket")(BYTES_FLOOR), 50.0
    bucket.set_rate(rate, now)
    if not bucket.take(size, now):
        ready_at = bucket.ready_at(now)
        debt = size - max(CAPACITY_SECONDS * rate, BYTES_FLOOR)
        assert ready_at == pytest.approx(now + debt / rate + READY_SECONDS)
        assert bucket.ready_at(ready_at + 1e-6) <= ready_at + 1e-6


def test_a_debt_is_paid_while_there_is_no_limit() -> None:
    bucket = offered("TokenBucket")(BYTES_FLOOR)
    bucket.set_rate(100_000.0, 0.0)
    bucket.take(1_000_000, 0.0)
    bucket.set_rate(None, 1.0)
    assert bucket.take(10**9, 2.0)
    bucket.set_rate(100_000.0, 5.0)
    # 65,536 tokens at first, 500,000 in five seconds.
    assert bucket.ready_at(5.0) == pytest.approx(5.0 + 4.344_64 + READY_SECONDS)
