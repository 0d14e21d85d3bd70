import math
from typing import Any

import pytest

from pipeline.core.calibration import Judged, Trust
from pipeline.core.errors import ExitCode, PipelineError

TRUST = Trust(max_error=0.2, max_imputed=0.5, min_requests=100)
ROW: dict[str, Any] = {
    "requests": 100, "imputed_share": 0.5, "outcome_error": 0.2, "recorded_ok": 90, "limiter_p99_us": 178e3,
    "simulated_ok": 90, "simulated_p99_us": 230e3,
}  # fmt: skip
SECOND = 1_000_000
EXACT = ROW | {"outcome_error": 0.0, "simulated_p99_us": ROW["limiter_p99_us"]}


def trusted(row: dict[str, Any] | None, promised_us: float = SECOND, mean_error: float = 0.0) -> Judged:
    return TRUST.in_all(None if row is None else Judged(row, promised_us, mean_error))


def test_calibration_at_the_bounds_is_trusted() -> None:
    assert trusted(ROW).error == 0.2
    assert trusted(EXACT, mean_error=0.2).error == 0.2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW | {"outcome_error": 0.21}, "an error of 0.210, expected at most 0.2"),
        (ROW | {"outcome_error": math.nan}, "an error of nan"),
        (ROW | {"simulated_p99_us": math.nan}, "an error of nan"),
        (ROW | {"requests": 99}, "99 requests could be compared with what was recorded, expected at least 100"),
        (EXACT | {"requests": 0}, "--min-requests"),
        (ROW | {"imputed_share": 0.51}, "51.0 % of the requests have sizes or times of others, expected at most 50 %"),
        (None, "was not held against what was recorded"),
    ],
)
def test_what_cannot_be_trusted_ends_with_the_reason(row: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(PipelineError, match="no advice") as caught:
        trusted(row)
    assert said in str(caught.value)
    assert caught.value.code == ExitCode.CALIBRATION


def test_who_is_told_that_there_is_no_advice_hears_of_the_share_that_is_not_replayed() -> None:
    off = Judged(ROW | {"outcome_error": 0.21}, SECOND, 0.0)
    with pytest.raises(PipelineError, match=r"had 50 % of direct memory.*record again with 100 there") as caught:
        TRUST.in_all(off, unproven_percent=50)
    assert "topicListUnprovenReadersMemoryPercent" in str(caught.value)
    with pytest.raises(PipelineError) as caught:
        TRUST.in_all(off)
    assert "topicListUnprovenReadersMemoryPercent" not in str(caught.value)


def test_the_same_waits_are_trusted_by_who_promises_a_second_and_not_by_who_promises_a_quarter() -> None:
    # 52 ms too many.
    row = EXACT | {"simulated_p99_us": 230e3}
    assert trusted(row).error == pytest.approx(0.052)
    with pytest.raises(
        PipelineError, match=r"an error of 0\.208.* the p99 of waits by 0\.208 \(weighed by the promised 250 ms"
    ):
        trusted(row, promised_us=250_000)


@pytest.mark.parametrize("simulated_us", [5e3, 430e3])
def test_replay_off_by_more_than_a_fifth_of_the_promise_is_not_trusted(simulated_us: float) -> None:
    row = EXACT | {"limiter_p99_us": 220e3, "simulated_p99_us": simulated_us}
    with pytest.raises(PipelineError, match="no advice") as caught:
        trusted(row)
    assert "outcomes differ by 0.000, the p99 of waits by 0.21" in str(caught.value)
    assert caught.value.code == ExitCode.CALIBRATION


def test_proxies_that_make_each_other_good_are_not_trusted() -> None:
    with pytest.raises(PipelineError, match=r"an error of 0\.600, .* single proxies by 0\.600 on average"):
        trusted(EXACT, mean_error=0.6)


def test_missing_calibration_is_not_trusted_however_much_error_is_allowed() -> None:
    with pytest.raises(PipelineError, match="no advice"):
        Trust(max_error=5, max_imputed=1, min_requests=1).in_all(None)


@pytest.mark.parametrize(
    ("bounds", "option"),
    [
        ((math.nan, 0.5, 1), "--max-error"),
        ((math.inf, 0.5, 1), "--max-error"),
        ((-0.1, 0.5, 1), "--max-error"),
        ((0.2, math.nan, 1), "--max-imputed"),
        ((0.2, 1.1, 1), "--max-imputed"),
        ((0.2, 0.5, 0), "--min-requests"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(bounds: tuple[float, float, int], option: str) -> None:
    with pytest.raises(PipelineError, match=f"^{option}: got"):
        Trust(*bounds)
