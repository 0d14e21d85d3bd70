"""The soft pool's promises one by one; `tests/property/test_soft_pool_machine.py` has them in any order."""

import pytest

from limiter.soft_pool import SoftPool


def test_k4_a_pool_of_21_grants_ten_three_times_and_then_nothing() -> None:
    pool = SoftPool(21, lambda: 0.0)
    for granted in range(3):
        assert not pool.scarce, granted
        pool.book(10)
    assert pool.scarce
    found = pool.record()
    assert (found.used_bytes, found.overshoots) == (30, 1)
    pool.book(-10)
    assert not pool.scarce


def test_k6_a_second_release_is_an_error_and_no_drift() -> None:
    pool = SoftPool(21, lambda: 0.0)
    pool.book(10)
    pool.book(-10)
    with pytest.raises(ValueError, match="the pool has 0"):
        pool.book(-10)
    assert pool.record().used_bytes == 0


def test_nobody_else_is_granted_while_somebody_waits() -> None:
    pool = SoftPool(10, lambda: 0.0)
    pool.book(10)
    pool.wait(1)
    pool.book(-10)
    assert pool.scarce
    pool.wait(-1)
    assert not pool.scarce
