"""The check values of pulsar-25239 (A1 to A3), and what must hold for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.overload.rate_rules import ideal_rate, learned, next_rate
from proxy.overload.samples import Marks

MARKS = Marks(high=0.85, low=0.70)
rates = st.floats(0, 1e9)
factors = st.floats(0, 1)


@pytest.mark.parametrize(
    ("ratio", "pressure"),
    [(0.0, 0.0), (0.70, 0.0), (0.775, 0.5), (0.85, 1.0), (2.0, 1.0), (None, 0.0), (float("nan"), 0.0)],
)
def test_a1_pressure_is_linear_between_the_marks(ratio: float | None, pressure: float) -> None:
    assert MARKS.pressure(ratio) == pytest.approx(pressure)


def test_a1_marks_without_a_distance_are_a_step() -> None:
    assert [Marks(0.8, 0.8).pressure(ratio) for ratio in (0.79, 0.8, 0.81)] == [0.0, 0.0, 1.0]


def steps(factor_of_cycle: list[float], natural: float = 1000.0) -> list[float]:
    last, found = natural, []
    for factor in factor_of_cycle:
        last = next_rate(last, ideal_rate(natural, factor, 0.10), natural, 0.10, 0.25, floor=1.0)
        found.append(round(last, 6))
    return found


def test_a2_rates_under_full_pressure_and_after_it() -> None:
    assert steps([1.0] * 5 + [0.0] * 4) == [750, 500, 250, 100, 100, 350, 600, 850, 1000]


def test_a2_half_the_pressure_leaves_a_little_more_than_half_the_rate() -> None:
    assert ideal_rate(1000, 0.5, 0.10) == pytest.approx(550)
    assert steps([0.5] * 4) == [750, 550, 550, 550]


@given(last=rates, natural=rates, factor=factors, floor=st.floats(0, 1e5))
def test_a2_no_step_exceeds_a_quarter_of_the_natural_rate_but_to_a_floor(
    last: float, natural: float, factor: float, floor: float
) -> None:
    rate = next_rate(last, ideal_rate(natural, factor, 0.10), natural, 0.10, 0.25, floor)
    lowest = max(1.0, floor, 0.10 * natural)
    assert rate >= lowest
    assert abs(rate - last) <= 0.25 * natural * (1 + 1e-9) + 1e-6 or rate == lowest


def test_a3_natural_rate_rises_quickly() -> None:
    natural, found = 0.0, []
    for _ in range(3):
        natural = learned(natural, 1000.0)
        found.append(natural)
    assert found == pytest.approx([300, 510, 657])


def test_a_reconnect_teaches_at_most_four_times_what_is_known() -> None:
    assert learned(1000.0, 1e9) == pytest.approx(1000 + 0.3 * 3000)


@given(natural=rates, measured=rates)
def test_a3_natural_rate_lies_between_what_was_known_and_what_was_measured(natural: float, measured: float) -> None:
    found = learned(natural, measured)
    assert min(natural, measured) * (1 - 1e-9) - 1e-6 <= found <= max(natural, measured) * (1 + 1e-9) + 1e-6
