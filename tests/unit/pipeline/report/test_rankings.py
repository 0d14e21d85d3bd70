"""Who is named first, and when nobody is."""

import pytest

from pipeline.report.facts import EVERYBODY
from pipeline.report.rankings import first
from tests.support.pipeline.report_frames import ranked

REQUESTS = ranked("namespace", "requests", ("t/a", 50.0), ("t/b", 50.0))
FIVE = ranked("namespace", "requests", *((f"t/{name}", 20.0) for name in "abcde"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([("t/a", 70.0), ("t/b", 30.0)], "the namespace t/a (70, 70 %)"),
        ([("t/a", 20.0), ("t/b", 10.0), ("t/c", 5.0)], "the namespace t/a (20, 20 %)"),
        # All of it is of one of several.
        ([("t/a", 100.0)], "the namespace t/a (100, 100 %)"),
        ([("t/a", 19.0), ("t/b", 1.0)], "nobody stands out; first is the namespace t/a (19, 19 %)"),
        # Two that are alike are not one.
        ([("t/a", 45.0), ("t/b", 40.0)], "nobody stands out; first is the namespace t/a (45, 45 %)"),
        ([(None, 90.0), ("t/b", 10.0)], "nobody stands out; first is the namespace (unknown) (90, 90 %)"),
    ],
)
def test_the_first_is_named_where_it_stands_out(values: list[tuple[str | None, float]], said: str) -> None:
    rows = [*REQUESTS, *ranked(EVERYBODY, "refused", (None, 100.0)), *ranked("namespace", "refused", *values)]
    assert first(rows, "refused") == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((40.0, 38.0, 7.0), "the namespace t/a (40, 40 %), the namespace t/b (38, 38 %)"),
        ((60.0, 38.0, 2.0), "the namespace t/a (60, 60 %)"),
        # Of five, three are most.
        ((30.0, 30.0, 30.0, 5.0, 5.0), "nobody stands out; first is the namespace t/a (30, 30 %)"),
        ((40.0, 30.0, 21.0), "nobody stands out; first is the namespace t/a (40, 40 %)"),
    ],
)
def test_two_culprits_do_not_hide_each_other(values: tuple[float, ...], said: str) -> None:
    refused = ranked(
        "namespace", "refused", *((f"t/{name}", value) for name, value in zip("abcde", values, strict=False))
    )
    assert first([*FIVE, *ranked(EVERYBODY, "refused", (None, 100.0)), *refused], "refused") == said


def test_nothing_is_said_of_what_nobody_has_and_nobody_stands_out_alone() -> None:
    alone = [*ranked(EVERYBODY, "requests", (None, 100.0)), *ranked("tenant", "requests", ("t", 100.0))]
    assert first(alone, "refused") == ""
    assert first(alone, "requests") == "nobody stands out"


def test_a_place_is_named_beside_who() -> None:
    rows = [
        *ranked(EVERYBODY, "requests", (None, 100.0)), *ranked("namespace", "requests", ("t/a", 9.0), ("t/b", 8.0)),
        *ranked("broker", "requests", ("b1", 80.0), ("b2", 20.0)),
    ]  # fmt: skip
    said = "nobody stands out; first is the namespace t/a (9, 9 %); where: the broker b1 (80, 80 %)"
    assert first(rows, "requests") == said
