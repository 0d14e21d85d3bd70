import asyncio

import pytest

from tests.support import patience
from tests.support.patience import MOST, factor, in_time, patient, patient_millis, scaled_by


@pytest.mark.parametrize(
    ("slowness", "load", "expected"),
    [(0.5, 0.1, 1.0), (1.0, 1.0, 1.0), (3.0, 0.1, 3.0), (1.0, 4.0, 4.0), (100.0, 0.0, MOST), (0.0, 100.0, MOST)],
)
def test_factor_is_the_larger_of_both_within_its_bounds(slowness: float, load: float, expected: float) -> None:
    assert scaled_by(slowness, load) == expected


def test_measured_factor_is_within_its_bounds() -> None:
    assert 1.0 <= factor() <= MOST


def test_times_keep_their_proportions_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "factor", lambda: 3.0)
    assert (patient(20.0), patient_millis(150)) == (60.0, 450)


async def test_block_ends_when_its_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "factor", lambda: 0.0)
    with pytest.raises(TimeoutError):
        async with in_time():
            await asyncio.Event().wait()
