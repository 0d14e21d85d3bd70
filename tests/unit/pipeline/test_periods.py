import argparse
from datetime import UTC, datetime

import pytest

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.periods import Period, add_period, given_period, window_seconds


def given(*words: str) -> Period:
    parser = argparse.ArgumentParser()
    add_period(parser)
    return given_period(parser.parse_args(words))


def test_times_without_a_zone_are_utc() -> None:
    assert given("--since", "2026-01-01") == Period(1_767_225_600_000_000, None)
    assert given("--until", "2026-01-01T01:00+01:00") == Period(None, 1_767_225_600_000_000)


def test_a_span_is_so_long_ago() -> None:
    since, hour_us = given("--since", "1h").since_us, 3_600_000_000
    assert since is not None
    now_us = int(datetime.now(UTC).timestamp() * 1e6)
    assert now_us - hour_us - 60_000_000 < since <= now_us - hour_us
    assert since % 1_000_000 == 0


def test_period_without_options_is_all_time() -> None:
    assert str(given()) == "the beginning to the end"


def test_a_period_is_shown_in_utc_so_that_times_that_differ_look_so() -> None:
    assert str(given("--since", "2026-01-01T13:00:00+01:00")) == "2026-01-01 12:00:00 UTC to the end"
    within = given("--since", "2026-01-01T12:00:00.25", "--until", "2026-01-01T12:00:00.5")
    assert str(within) == "2026-01-01 12:00:00.250000 UTC to 2026-01-01 12:00:00.500000 UTC"


def test_two_times_of_one_second_the_wrong_way_round_are_told_as_given() -> None:
    with pytest.raises(PipelineError, match=r"got 2026-01-01T12:00:00\.5 and 2026-01-01T12:00:00\.25, which"):
        given("--since", "2026-01-01T12:00:00.5", "--until", "2026-01-01T12:00:00.25")


@pytest.mark.parametrize("words", [("--since", "today"), ("--since", "2026-01-02", "--until", "2026-01-02")])
def test_what_is_no_period_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(PipelineError, match="--since") as raised:
        given(*words)
    assert raised.value.code == ExitCode.USAGE


@pytest.mark.parametrize("words", [("--since", "0001-01-01T00:00+14:00"), ("--until", "9999-12-31T23:59:59-10:00")])
def test_time_that_is_no_date_in_utc_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(PipelineError, match=f"{words[0]}: got .*, expected a time of the years 1 to 9999") as raised:
        given(*words)
    assert raised.value.code == ExitCode.USAGE


@pytest.mark.parametrize(("word", "seconds"), [("10s", 10), ("1m", 60), ("15m", 900), ("1h", 3600), ("1d", 86_400)])
def test_windows_are_parts_of_a_day(word: str, seconds: int) -> None:
    assert window_seconds("--window", word) == seconds


@pytest.mark.parametrize("word", ["0s", "7m", "2d", "1.5h", "60"])
def test_other_windows_are_refused(word: str) -> None:
    with pytest.raises(PipelineError, match="--window: got"):
        window_seconds("--window", word)
