"""The soft pool's promises one by one; `tests/property/test_soft_pool_machine.py` has them in any order."""

import pytest

from limiter.soft_pool import LocalBooks, PoolLine


def books(limit: int) -> LocalBooks:
    return LocalBooks(limit, lambda: 0.0)


def test_k4_a_pool_of_21_grants_ten_three_times_and_then_nothing() -> None:
    pool = books(21)
    for granted in range(3):
        assert not pool.pool_scarce(), granted
        pool.pool_change(0, 10)
    assert pool.pool_scarce()
    _, used, _, _, overshoots, _ = pool.pool()
    assert (used, overshoots) == (30, 1)
    pool.pool_change(10, 0)
    assert not pool.pool_scarce()


def test_k6_a_second_release_is_an_error_and_no_drift() -> None:
    pool = books(21)
    pool.pool_change(0, 10)
    pool.pool_change(10, 0)
    for before, after in ((10, 0), (1, 0), (0, -1)):
        with pytest.raises(ValueError, match="the pool has 0"):
            pool.pool_change(before, after)
    _, used, *_ = pool.pool()
    assert used == 0


def test_nobody_else_is_granted_while_somebody_waits() -> None:
    pool = books(10)
    line: PoolLine[str] = PoolLine(pool, lambda below: 0)
    pool.pool_change(0, 10)
    line.enter("first")
    pool.pool_change(10, 0)
    assert pool.pool_free()
    assert pool.pool_scarce()
    assert line.admit() == "first"
    assert not pool.pool_scarce()


@pytest.mark.parametrize("start", range(4))
def test_turns_go_in_the_order_of_coming_from_a_random_place_on(start: int) -> None:
    pool = books(10)
    line: PoolLine[int] = PoolLine(pool, lambda below: start)
    pool.pool_change(0, 10)
    for member in range(4):
        line.enter(member)
    assert line.admit() is None
    pool.pool_change(10, 0)
    order = [line.admit()]
    # Who comes later is behind all that waited.
    line.enter(9)
    order += [line.admit() for _ in range(4)]
    assert order == [*range(start, 4), *range(start), 9]
    assert line.admit() is None
