import numpy as np
import pytest

from pipeline.replay.buckets import count_waits
from pipeline.replay.calibrate import Calibration, Seen, compare, outcome_error, wait_error
from pipeline.replay.model import Limits, Outcome
from pipeline.replay.slices import Slice

MS = 1000


def seen(ok: int = 0, refused: int = 0, cancelled: int = 0, failed: int = 0, waits_ms: tuple[float, ...] = ()) -> Seen:
    outcomes = np.zeros(len(Outcome), np.int64)
    outcomes[[Outcome.OK, Outcome.QUEUE_FULL_HEAP, Outcome.CANCELLED, Outcome.FAILED]] = ok, refused, cancelled, failed
    return Seen(outcomes, count_waits(np.array([int(wait * MS) for wait in waits_ms], np.int64)))


def test_equal_sides_have_no_error() -> None:
    side = seen(ok=10, refused=3, waits_ms=(5, 700))
    assert Calibration("p", side, side).error == 0


def test_error_of_outcomes_is_the_largest_difference_of_shares() -> None:
    # 90, 10 and 0 % against 80, 14 and 6 %.
    assert outcome_error(seen(90, 10, 0), seen(40, 7, 3)) == pytest.approx(0.1)


def test_refusals_may_differ_most() -> None:
    # 90, 0 and 10 % against 84, 12 and 4 %.
    assert outcome_error(seen(90, 0, 10), seen(84, 12, 4)) == pytest.approx(0.12)


def test_ways_of_refusal_are_one_outcome() -> None:
    other = np.zeros(len(Outcome), np.int64)
    other[[Outcome.OK, Outcome.TIMEOUT_DIRECT, Outcome.OVERSIZE]] = 5, 3, 2
    assert outcome_error(seen(5, 5), Seen(other, seen().waits)) == 0


def test_error_of_waits_goes_by_the_recorded_wait() -> None:
    error = wait_error(seen(1, waits_ms=(1000,)), seen(1, waits_ms=(1500,)))
    assert error == pytest.approx(0.5, abs=0.1)


def test_short_waits_go_by_the_floor() -> None:
    # 10 ms against 20 ms is 10 ms of 100.
    assert wait_error(seen(1, waits_ms=(10,)), seen(1, waits_ms=(20,))) == pytest.approx(0.1, abs=0.02)


def test_neighbouring_buckets_are_the_same() -> None:
    assert wait_error(seen(1, waits_ms=(1000,)), seen(1, waits_ms=(1080,))) == 0


def test_waits_are_not_compared_where_nobody_was_answered() -> None:
    assert wait_error(seen(refused=1), seen(ok=1, waits_ms=(900,))) == 0


def test_failures_of_brokers_and_warm_ups_are_not_compared() -> None:
    count = 4
    zeros = np.zeros(count, np.int64)
    numbers = dict.fromkeys(("estimate_bytes", "heap_bytes", "direct_bytes", "upstream_us", "hold_us"), zeros)
    part = Slice(
        numbers | {"arrival_us": np.arange(count), "write_us": zeros, "direct_us": zeros, "cancel_us": zeros - 1},
        {name: np.arange(count) for name in ("question", "client", "broker", "principal", "tenant", "namespace")},
        np.array([Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.CANCELLED]),
        zeros,
        warm_up=1,
    )
    recorded, simulated = compare(part, Limits())
    assert (recorded.outcomes[Outcome.OK], recorded.outcomes[Outcome.CANCELLED]) == (1, 1)
    assert simulated.outcomes[Outcome.OK] == simulated.outcomes.sum() == 2
