"""Samples of the last minutes and the document that viewers share: rates, bounds."""

import math

from proxy.web.ui.minutes import KEPT, Minutes
from proxy.web.ui.page import MOST_VIEWS, _SharedDocument


def test_counters_become_rates_and_other_numbers_stay() -> None:
    counts, gauges = {"lists": 0.0}, {"waiting": 7.0, "wait": math.nan}
    minutes = Minutes(lambda: dict(counts), lambda: gauges)
    minutes.tick(10.0)
    assert minutes.shown() == {}
    counts["lists"] = 30.0
    minutes.tick(12.0)
    assert minutes.shown() == {"lists": [15.0], "waiting": [7.0], "wait": [0.0]}


def test_only_the_last_samples_are_kept() -> None:
    seen = [0.0]
    minutes = Minutes(lambda: {"lists": seen[0]}, dict)
    for second in range(3 * KEPT):
        seen[0] += second
        minutes.tick(float(second))
    assert minutes.shown()["lists"] == [float(second) for second in range(2 * KEPT, 3 * KEPT)]


def test_a_clock_that_stands_still_adds_nothing() -> None:
    minutes = Minutes(lambda: {"lists": 1.0}, dict)
    for _ in range(3):
        minutes.tick(1.0)
    assert minutes.shown() == {}


def test_viewers_of_a_second_share_one_document_and_are_bounded() -> None:
    made: list[int] = []
    document = _SharedDocument(lambda: {"made": made.append(1) or len(made)})  # type: ignore[func-returns-value]
    found = [document.get(5.0 + view / 1000) for view in range(MOST_VIEWS + 1)]
    assert found == [b'{"made":1}'] * MOST_VIEWS + [None]
    assert document.get(6.5) == b'{"made":2}'
