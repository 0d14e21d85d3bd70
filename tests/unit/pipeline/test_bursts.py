import numpy as np
import pytest

from pipeline.transforms.storms import Burst, BurstRule, bursts

RULE = BurstRule(times=3.0, floor=20, gap_seconds=2)


# Eleven minutes: what is usual is known.
QUIET = dict.fromkeys(range(100, 760), 10)


def found(counts: dict[int, int]) -> list[Burst]:
    seconds, requests = (np.array(list(each), np.int64) for each in (counts, counts.values()))
    return bursts(seconds, requests, RULE)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, []),
        (QUIET, []),
        # 106 and 107 are calm: two seconds, as many as the rule bears.
        (QUIET | {105: 60, 108: 90}, [Burst(105, 108, 10.0, 90)]),
        (QUIET | {105: 60, 109: 90}, [Burst(105, 105, 10.0, 60), Burst(109, 109, 10.0, 90, 2)]),
        # Seconds without any arrival are calm as well.
        (
            dict.fromkeys(range(10), 10) | {20: 90, 23: 90, 27: 90},
            [Burst(20, 23, 0.0, 90), Burst(27, 27, 0.0, 90, 2)],
        ),
    ],
)
def test_calm_seconds_beyond_the_gap_end_a_burst(counts: dict[int, int], expected: list[Burst]) -> None:
    assert found(counts) == expected


def test_few_arrivals_are_no_burst_however_rare_others_are() -> None:
    assert found({1: 1, 2: 1, 3: 1, 4: 19}) == []
    assert found({1: 1, 2: 1, 3: 1, 4: 20}) == [Burst(4, 4, 0.0, 20)]


@pytest.mark.parametrize("seconds", [1, 2, 30, 299])
def test_a_storm_that_is_all_there_is_is_one(seconds: int) -> None:
    storm = dict.fromkeys(range(100, 100 + seconds), 200)
    assert found(storm) == [Burst(100, 99 + seconds, 0.0, 200)]


def test_what_goes_on_for_longer_than_five_minutes_is_usual() -> None:
    assert found(dict.fromkeys(range(301), 200)) == []


def test_a_recording_that_begins_before_midnight_and_goes_on_is_no_short_one() -> None:
    midnight = 86_400
    assert found(dict.fromkeys(range(midnight - 120, midnight + 1200), 60)) == []
    storm = dict.fromkeys(range(midnight - 120, midnight), 200)
    quiet = dict.fromkeys(range(midnight, midnight + 1200), 10)
    assert found(storm | quiet) == [Burst(midnight - 120, midnight - 1, 10.0, 200)]


def test_half_of_all_seconds_are_silent_before_silence_is_usual() -> None:
    steady = dict.fromkeys(range(400), 10)
    # The storm's own second is one of those that are not silent.
    rates = [found(steady | {last: 90})[0].usual_rate for last in (800, 801, 802)]
    assert rates == [10.0, 5.0, 0.0]


def test_work_of_hours_is_no_storm_after_nights_of_silence() -> None:
    day = {day * 86_400 + second: 60 for day in range(3) for second in range(3600)}
    assert found(day) == []


def test_what_is_usual_is_of_seven_days() -> None:
    steady = {day * 86_400 + second: 10 for day in range(9) for second in range(3600)}
    storm = {12 * 86_400 + second: 30 for second in range(60)}
    assert [(burst.day, burst.usual_rate) for burst in found(steady | storm)] == [(12, 10.0)]
    # Three days later the last of the steady ones is over.
    later = {second + 3 * 86_400: requests for second, requests in storm.items()}
    assert [burst.usual_rate for burst in found(steady | later)] == [0.0]


def test_a_storm_over_midnight_is_of_its_first_day() -> None:
    night = dict.fromkeys(range(86_390, 86_410), 1)
    assert [burst.day for burst in found(night | {86_399: 50, 86_400: 60, 86_405: 70})] == [0, 1]


def test_storms_do_not_make_themselves_usual() -> None:
    stormy = dict.fromkeys(range(110, 119), 1000)
    assert [burst.usual_rate for burst in found(QUIET | stormy)] == [10.0]
