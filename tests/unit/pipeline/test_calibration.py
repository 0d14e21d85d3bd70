import numpy as np
import pytest

from pipeline.replay.buckets import count_waits
from pipeline.replay.calibrate import Calibration, Seen, compare, outcome_error, together, wait_error
from pipeline.replay.model import Limits, Outcome
from pipeline.replay.slices import COLUMNS, Slice

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


def test_error_is_the_larger_of_outcomes_and_waits() -> None:
    recorded, slower = seen(10, waits_ms=(1000,)), seen(10, waits_ms=(3000,))
    refusing = seen(4, 6, waits_ms=(1000,))
    assert Calibration("p", recorded, slower).error == wait_error(recorded, slower) > 1
    assert Calibration("p", recorded, refusing).error == outcome_error(recorded, refusing) == pytest.approx(0.6)


def test_errors_of_proxies_the_other_way_round_do_not_cancel() -> None:
    one = Calibration("one", seen(100), seen(40, 60))
    other = Calibration("other", seen(40, 60), seen(100))
    both = together([one, other])
    assert outcome_error(both.recorded, both.simulated) == 0
    assert both.error == pytest.approx(0.6)


def test_small_proxy_is_no_veto_however_far_off_it_is() -> None:
    good = Calibration("good", seen(999, waits_ms=(10,) * 999), seen(999, waits_ms=(10,) * 999))
    bad = Calibration("bad", seen(1, waits_ms=(1,)), seen(1, waits_ms=(90_000,)))
    assert bad.error > 100
    assert together([good, bad]).error == pytest.approx(0.001)


def test_calibration_of_nobody_has_no_error() -> None:
    assert together([]).error == 0


def part(outcomes: list[Outcome], warm_up: int = 0, **named: int) -> Slice:
    """Make a slice of requests a microsecond apart, each a client and a question of its own."""
    count = len(outcomes)
    zeros = np.zeros(count, np.int64)
    numbers = {name: zeros + named.get(name, 0) for name in COLUMNS}
    return Slice(
        numbers | {"arrival_us": np.arange(count), "cancel_us": zeros - 1},
        {name: np.arange(count) for name in ("question", "client", "broker", "principal", "tenant", "namespace")},
        np.array(outcomes),
        np.arange(count) * MS,
        warm_up,
    )


def test_failures_of_brokers_and_warm_ups_are_not_compared() -> None:
    mixed = part([Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.CANCELLED], warm_up=1)
    recorded, simulated = compare(mixed, Limits())
    assert (recorded.outcomes[Outcome.OK], recorded.outcomes[Outcome.CANCELLED]) == (1, 1)
    assert simulated.outcomes[Outcome.OK] == simulated.outcomes.sum() == 2


def test_broker_reading_and_writing_are_no_wait() -> None:
    _, simulated = compare(part([Outcome.OK] * 3, upstream_us=5 * MS, hold_us=70 * MS, write_us=9 * MS), Limits())
    assert simulated.waits[0] == simulated.waits.sum() == 3


def test_waits_of_refused_requests_are_not_compared() -> None:
    recorded, _ = compare(part([Outcome.OK, Outcome.TIMEOUT_HEAP, Outcome.CANCELLED, Outcome.OK]), Limits())
    assert recorded.waits.tolist() == count_waits(np.array([0, 3 * MS])).tolist()
