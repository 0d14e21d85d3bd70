"""The judges of a soak: the slope and its bound, and what counts as growth."""

import random
from dataclasses import replace

from tests.soak.slope import slope
from tests.soak.verdict import (
    MOST_BYTES_AN_HOUR,
    Quiet,
    Record,
    Sample,
    broken,
    grown,
)
from tests.support.each import each

QUIET = Quiet(10.0, 60_000_000, {"socket": 20}, 6, {"sessions": 0}, {"run": 2}, {"builtins.dict": 500}, {})


def test_the_bound_holds_in_19_of_20_series_that_remember_their_last_value() -> None:
    dice, within, series = random.Random(1), 0, 300
    for _ in range(series):
        value, values = 0.0, []
        for number in range(540):
            value = 0.9 * value + dice.gauss(0, 1)
            values.append(value + 2.0 * number / 720)
        within += slope([number / 720 for number in range(540)], values).at_most >= 2.0
    assert within / series >= 0.92


def steady(bytes_an_hour: float, minutes: int = 60) -> Record:
    dice = random.Random(3)
    samples = [
        Sample(at, round(60e6 + bytes_an_hour * at / 3600 + dice.gauss(0, 1e5)), 20, 6)
        for at in range(0, minutes * 60, 5)
    ]
    return Record(samples, [QUIET, QUIET], {"lists": 9})


def test_a_process_that_grows_breaks_the_promise_and_a_noisy_one_does_not() -> None:
    assert broken(steady(0.0), ["lists"], 60) == []
    assert "memory grows" in broken(steady(1.5 * MOST_BYTES_AN_HOUR), ["lists"], 60)[0]


@each(
    ("more", "text"),
    [
        ({"books": {"sessions": 1}}, "sessions: 1, expected 0"),
        ({"descriptors": {"socket": 21}}, "descriptors of socket: 20 before, 21 after"),
        ({"threads": 13}, "threads: 6 before, 13 after"),
        ({"tasks": {"run": 2, "read": 1}}, "tasks of read: 0 before, 1 after"),
        ({"objects": {"proxy.Session": 80}}, "objects of proxy.Session: 0 before, 80 after"),
    ],
)
def test_growth_is_named(more: dict[str, object], text: str) -> None:
    assert grown(QUIET, replace(QUIET, **more)) == [text]  # type: ignore[arg-type]


def test_what_caches_and_pools_keep_is_no_growth() -> None:
    assert grown(QUIET, replace(QUIET, objects={"builtins.dict": 560}, descriptors={"socket": 19, "pipe": 16})) == []


def test_actions_that_failed_or_never_ended_well_break_the_promise() -> None:
    record = Record([], [QUIET, replace(QUIET, internal_errors={"ValueError": 2})], {"lists": 9}, {"crowd: odd": 3})
    assert broken(record, ["lists", "pages"], 1) == [
        "pages: ended well 0 times",
        "failed 3 times: crowd: odd",
        "internal error ValueError: 2 times",
    ]
