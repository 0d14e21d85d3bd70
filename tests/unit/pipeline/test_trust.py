import math
from typing import Any

import pytest

from pipeline.errors import ExitCode, PipelineError
from pipeline.trust import Trust

TRUST = Trust(max_error=0.2, max_imputed=0.5, min_requests=100)
ROW: dict[str, Any] = {"requests": 100, "imputed_share": 0.5, "error": 0.2}


def test_calibration_at_the_bounds_is_trusted() -> None:
    assert TRUST.error_of(ROW) == 0.2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW | {"error": 0.21}, "an error of 0.210, expected at most 0.2"),
        (ROW | {"error": math.nan}, "an error of nan"),
        (ROW | {"requests": 99}, "99 requests could be compared with what was recorded, expected at least 100"),
        (ROW | {"requests": 0, "error": 0.0}, "--min-requests"),
        (ROW | {"imputed_share": 0.51}, "51.0 % of the requests have sizes or times of others, expected at most 50 %"),
        (None, "was not held against what was recorded"),
    ],
)
def test_what_cannot_be_trusted_ends_with_the_reason(row: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(PipelineError, match="no advice") as caught:
        TRUST.error_of(row)
    assert said in str(caught.value)
    assert caught.value.code == ExitCode.CALIBRATION


def test_missing_calibration_is_not_trusted_however_much_error_is_allowed() -> None:
    with pytest.raises(PipelineError, match="no advice"):
        Trust(max_error=5, max_imputed=1, min_requests=1).error_of(None)


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
