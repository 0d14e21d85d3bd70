import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.buckets import count_waits
from pipeline.core.calibration import ALL, Judged, Trust, judge
from pipeline.core.errors import Calm, ExitCode, PipelineError
from pipeline.core.model import Limits, Outcome
from pipeline.replay.calibrate import Calibration, Lateness, Seen, compare, together
from pipeline.replay.slices import COLUMNS, Slice

MS = 1000
SECOND = 1_000_000


def seen(ok: int = 0, refused: int = 0, cancelled: int = 0, failed: int = 0, waits_ms: tuple[float, ...] = ()) -> Seen:
    outcomes = np.zeros(len(Outcome), np.int64)
    outcomes[[Outcome.OK, Outcome.QUEUE_FULL_HEAP, Outcome.CANCELLED, Outcome.FAILED]] = ok, refused, cancelled, failed
    return Seen(outcomes, count_waits(np.array([int(wait * MS) for wait in waits_ms], np.int64)))


def waited(ms: float) -> Seen:
    return seen(ok=1, waits_ms=(ms,))


def judged(recorded: Seen, simulated: Seen, promised_us: float = SECOND) -> Judged:
    """Judge one proxy by its row of the table."""
    return judge([Calibration("p", recorded, simulated).row(0)], promised_us)["p"]


def in_all(each: Sequence[Calibration], promised_us: float = SECOND) -> Judged:
    """Judge all proxies by their rows of the table."""
    return judge([one.row(0) for one in (together(each), *each)], promised_us)[ALL]


@pytest.mark.parametrize(
    ("recorded", "simulated", "said"),
    [
        (43, 24, "Under the recorded limits 43 requests were refused, 24 in the replay: it missed 19"),
        (0, 4, "Under the recorded limits 0 requests were refused, 4 in the replay: it has 4 too many"),
        (7, 4, ""),
        (4, 7, ""),
    ],
)
def test_refusals_are_said_side_by_side_if_more_than_a_few_differ(recorded: int, simulated: int, said: str) -> None:
    assert judged(seen(ok=9, refused=recorded), seen(ok=9, refused=simulated)).refusals == said


def test_error_of_outcomes_is_the_largest_difference_of_shares() -> None:
    # 90, 10 and 0 % against 80, 14 and 6 %.
    assert judged(seen(90, 10, 0), seen(40, 7, 3)).outcome_error == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("promised_ms", "error"),
    [
        (1000, 0.05),  # 50 ms of a second
        (250, 0.2),
        (100, 0.28),  # of the recorded 180 ms, which is longer
    ],
)
def test_error_of_waits_goes_by_the_promise_or_by_the_recorded_wait_if_that_is_longer(
    promised_ms: float, error: float
) -> None:
    assert judged(waited(180), waited(230), promised_ms * MS).wait_error == pytest.approx(error, rel=0.2)


@pytest.mark.parametrize(
    ("recorded_ms", "simulated_ms", "said"),
    [
        (100, 400, r"^weighed by the promised 1000 ms; the replay has 4\.00 times the recorded one, and both are far "),
        (100, 700, r"has \d\.\d\d times the recorded one$"),
        (0, 100, r"; one of both is nothing, and both are far below the promise$"),
        (3000, 1500, r"^weighed by the recorded \d{4} ms; the replay has 0\.50 times the recorded one$"),
    ],
)
def test_how_far_waits_are_apart_is_said_whether_the_promise_cares_or_not(
    recorded_ms: float, simulated_ms: float, said: str
) -> None:
    assert re.search(said, judged(waited(recorded_ms), waited(simulated_ms)).waits)


def test_errors_of_proxies_the_other_way_round_do_not_cancel() -> None:
    both = in_all([Calibration("one", seen(100), seen(40, 60)), Calibration("other", seen(40, 60), seen(100))])
    assert both.outcome_error == both.wait_error == 0
    assert both.error == pytest.approx(0.6)


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
        np.arange(count) * named.get("memory_wait_ms", 1) * MS,
        warm_up,
    )


def test_failures_of_brokers_and_warm_ups_are_not_compared() -> None:
    mixed = part([Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.CANCELLED], warm_up=1)
    recorded, simulated, _ = compare(mixed, Limits())
    assert (recorded.outcomes[Outcome.OK], recorded.outcomes[Outcome.CANCELLED]) == (1, 1)
    assert simulated.outcomes[Outcome.OK] == simulated.outcomes.sum() == 2


def test_machine_that_is_late_does_not_fail_the_replay_and_is_told() -> None:
    nothing, slow = seen(1, waits_ms=(0,)), count_waits(np.array([900 * MS], np.int64))
    late = Calibration("p", waited(900), nothing, Lateness(nothing.waits, slow)).row(0)
    assert judge([late], SECOND)["p"].error == 0
    assert late["late_p99_us"] == late["recorded_p99_us"]
    assert float(str(late["late_p99_us"])) > 800 * MS
    assert judged(waited(900), nothing).error > 0.8


# --- whether it is trusted

TRUST = Trust(max_error=0.2, max_imputed=0.5, min_requests=100)
ROW: dict[str, Any] = {
    "requests": 100, "imputed_share": 0.5, "outcome_error": 0.2, "recorded_ok": 90, "limiter_p99_us": 178e3,
    "simulated_ok": 90, "simulated_p99_us": 230e3, "late_p99_us": 0.0, "recorded_refused": 0,
}  # fmt: skip
EXACT = ROW | {"outcome_error": 0.0, "simulated_p99_us": ROW["limiter_p99_us"]}


def trusted(
    row: dict[str, Any] | None, promised_us: float = SECOND, mean_error: float = 0.0, waited: int = 1
) -> Judged:
    return TRUST.in_all(None if row is None else Judged(row, promised_us, mean_error), waited)


def test_calibration_at_the_bounds_is_trusted() -> None:
    assert trusted(ROW).error == 0.2
    assert trusted(EXACT, mean_error=0.2).error == 0.2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW | {"outcome_error": 0.21}, "an error of 0.210, expected at most 0.2"),
        (ROW | {"outcome_error": math.nan}, "an error of nan"),
        (ROW | {"requests": 99}, "99 requests could be compared with what was recorded, expected at least 100"),
        (ROW | {"imputed_share": 0.51}, "51.0 % of the requests have sizes or times of others, expected at most 50 %"),
        (None, "was not held against what was recorded"),
    ],
)
def test_what_cannot_be_trusted_ends_with_the_reason(row: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(PipelineError, match="no advice") as caught:
        trusted(row)
    assert said in str(caught.value)
    assert caught.value.code == ExitCode.CALIBRATION


def test_a_recording_in_which_nobody_waited_is_no_ground_for_advice() -> None:
    with pytest.raises(Calm, match="no advice: nobody waited: 0 of 100 requests had to wait") as caught:
        trusted(EXACT, waited=0)
    assert caught.value.code == ExitCode.CALIBRATION
    with pytest.raises(PipelineError, match="nobody waited") as wrong:
        trusted(EXACT | {"recorded_refused": 1}, waited=0)
    assert not isinstance(wrong.value, Calm), "lists that are too large are refused without a wait"


@pytest.mark.parametrize(
    ("row", "not_replayed", "step"),
    [
        (
            {},
            ["topicListUnprovenReadersMemoryPercent=100"],
            "record again with topicListUnprovenReadersMemoryPercent=100",
        ),
        ({"late_p99_us": 400e3}, [], "record on a machine that is less busy: this one was late by 400 ms"),
        ({"simulated_p99_us": 900e3}, [], "promise more than 1000 ms"),
        ({}, [], "record again with more memory"),
    ],
)
def test_who_gets_no_advice_hears_what_may_help(row: dict[str, Any], not_replayed: list[str], step: str) -> None:
    off = Judged(ROW | {"outcome_error": 0.21} | row, SECOND, 0.0)
    with pytest.raises(PipelineError) as caught:
        TRUST.in_all(off, 1, not_replayed)
    assert f"on average; what may help: {step}" in str(caught.value)


def test_proxies_that_make_each_other_good_are_not_trusted() -> None:
    with pytest.raises(PipelineError, match=r"an error of 0\.600, .* single proxies by 0\.600 on average"):
        trusted(EXACT, mean_error=0.6)
