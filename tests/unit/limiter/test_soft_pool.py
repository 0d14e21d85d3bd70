"""The soft pool's promises one by one; `tests/property/test_soft_pool_machine.py` has them in any order."""

import pytest

from limiter.soft_pool import LocalBooks


def test_k4_a_pool_of_21_grants_ten_three_times_and_then_nothing() -> None:
    pool = LocalBooks(21, lambda: 0.0)
    for granted in range(3):
        assert not pool.pool_scarce(), granted
        pool.pool_change(0, 10)
    assert pool.pool_scarce()
    _, used, _, _, overshoots, _ = pool.pool()
    assert (used, overshoots) == (30, 1)
    pool.pool_change(10, 0)
    assert not pool.pool_scarce()


def test_k6_a_second_release_is_an_error_and_no_drift() -> None:
    pool = LocalBooks(21, lambda: 0.0)
    pool.pool_change(0, 10)
    pool.pool_change(10, 0)
    with pytest.raises(ValueError, match="the pool has 0"):
        pool.pool_change(10, 0)
    assert pool.pool()[1] == 0


def test_nobody_else_is_granted_while_somebody_waits() -> None:
    pool = LocalBooks(10, lambda: 0.0)
    pool.pool_change(0, 10)
    pool.pool_wait(0, 1)
    pool.pool_change(10, 0)
    assert pool.pool_scarce()
    pool.pool_wait(1, 0)
    assert not pool.pool_scarce()
