import numpy as np

from pipeline.transforms.storms import Burst, BurstRule, bursts

RULE = BurstRule(times=3.0, floor=20, gap_seconds=2)


def found(counts: dict[int, int], rule: BurstRule = RULE) -> list[Burst]:
    seconds = np.array(list(counts), dtype=np.int64)
    return bursts(seconds, np.array(list(counts.values()), dtype=np.int64), rule)


def quiet(*stormy: int) -> dict[int, int]:
    return {second: 10 for second in range(100, 120) if second not in stormy}


def test_nothing_has_no_bursts() -> None:
    assert found({}) == []


def test_even_arrivals_are_no_burst() -> None:
    assert found(quiet()) == []


def test_seconds_far_above_the_usual_are_a_burst() -> None:
    assert found(quiet(105, 106) | {105: 200, 106: 40}) == [Burst(105, 106, 10.0, 200)]


def test_calm_seconds_within_the_gap_do_not_end_a_burst() -> None:
    # 106 and 107 are calm: two seconds, as many as the rule bears.
    assert found(quiet() | {105: 60, 108: 90}) == [Burst(105, 108, 10.0, 90)]


def test_calm_seconds_beyond_the_gap_end_it() -> None:
    assert found(quiet() | {105: 60, 109: 90}) == [Burst(105, 105, 10.0, 60), Burst(109, 109, 10.0, 90)]


def test_seconds_without_any_arrival_count_as_calm() -> None:
    calm = dict.fromkeys(range(10), 10)
    assert found(calm | {20: 90, 23: 90, 27: 90}) == [Burst(20, 23, 0.0, 90), Burst(27, 27, 0.0, 90)]


def test_order_of_seconds_does_not_matter() -> None:
    counts = quiet() | {105: 60, 109: 90}
    assert found(dict(reversed(counts.items()))) == found(counts)


def test_few_arrivals_are_no_burst_however_rare_others_are() -> None:
    assert found({1: 1, 2: 1, 3: 1, 4: 19}) == []
    assert found({1: 1, 2: 1, 3: 1, 4: 20}) == [Burst(4, 4, 1.0, 20)]


def test_storm_is_found_though_nearly_all_requests_were_in_it() -> None:
    assert found({100: 900, 101: 800, 130: 2, 160: 1}) == [Burst(100, 101, 0.0, 900)]


def test_storm_that_is_all_there_is_is_found_by_the_silence_in_which_it_was_served() -> None:
    seconds, requests = np.array([100, 101]), np.array([200, 100])
    assert bursts(seconds, requests, RULE) == []
    assert bursts(seconds, requests, RULE, last=104) == [Burst(100, 101, 0.0, 200)]


def test_half_of_all_seconds_are_silent_before_silence_is_usual() -> None:
    assert [burst.usual_rate for burst in found({1: 10, 2: 12, 5: 90})] == [10.0]
    assert [burst.usual_rate for burst in found({1: 10, 2: 12, 6: 90})] == [5.0]
    assert [burst.usual_rate for burst in found({1: 10, 2: 12, 7: 90})] == [0.0]


def test_work_of_hours_is_no_storm_after_nights_of_silence() -> None:
    day = {day * 86_400 + second: 60 for day in range(3) for second in range(3600)}
    assert found(day) == []


def test_storms_do_not_make_themselves_usual() -> None:
    stormy = dict.fromkeys(range(110, 119), 1000)
    assert [burst.usual_rate for burst in found(quiet() | stormy)] == [10.0]
