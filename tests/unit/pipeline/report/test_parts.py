"""Numbers, foreign texts, colours and bins of the report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report import charts
from pipeline.report.clock import MOST_BINS, clock_of
from pipeline.report.units import duration, share, shown

LEAST_CONTRAST = 3.0


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0 µs"),
        (999, "999 µs"),
        (1500, "1.5 ms"),
        (250_000, "250 ms"),
        (90e6, "90 s"),
        (120e6, "2 min"),
        (None, "-"),
    ],
)
def test_durations_read_as_people_say_them(micros: float | None, text: str) -> None:
    assert duration(micros) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0 %"), (0.00001, "< 0.1 %"), (0.5, "50 %"), (0.123, "12.3 %"), (0.9999, "> 99.9 %"), (1, "100 %")],
)
def test_a_little_is_never_written_as_nothing(part: float, text: str) -> None:
    assert share(part) == text


def test_a_text_shows_what_is_invisible_and_ends() -> None:
    assert shown("a\u202eb\x00") == "a\\u202eb\\u0000"
    assert shown(None) == "(unknown)"
    assert shown("") == "(none)"
    assert len(shown("n" * 500)) == 120


@given(st.text(max_size=200))
def test_no_text_is_shown_with_control_characters(text: str) -> None:
    assert shown(text).isprintable() or " " in text or "\u3000" in text or any(letter.isspace() for letter in text)


@given(st.integers(0, 4 * 10**15), st.integers(0, 10**15))
def test_any_time_has_few_bins_that_hold_it(begin_us: int, span_us: int) -> None:
    clock = clock_of(begin_us, begin_us + span_us)
    assert 1 <= clock.bins <= MOST_BINS
    assert clock.origin_us <= begin_us
    assert begin_us + span_us < clock.origin_us + clock.bins * clock.step_us


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", [charts.LIGHT, charts.DARK])
@pytest.mark.parametrize("colour", charts.SERIES)
def test_each_colour_can_be_seen_on_both_pages(colour: str, page: str) -> None:
    brighter, darker = sorted((luminance(colour), luminance(page)), reverse=True)
    assert (brighter + 0.05) / (darker + 0.05) >= LEAST_CONTRAST
