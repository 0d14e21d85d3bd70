"""The table of hostile and slow neighbours: one line a row of each scenario, with everything that was asked of it."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.ladder import neighbours, report, run
from benchmarks.ladder.hostile_scenarios import FLOODS
from benchmarks.ladder.measure import Effort, Measured, Report
from benchmarks.ladder.rows import MIB
from benchmarks.ladder.scenarios import SCENARIOS

BESIDE: Report = {
    "ping_p99_ms": 12.5, "machine_p99_ms": 1.5, "lookup_p99_ms": 20.0, "list_p99_ms": 40.0, "refused": 0, "lost": 0,
    "wrong": 0, "ping_lost": 0, "flood_bytes": 1, "held_at_end": 0, "idle_rss_bytes": 0, "peak_rss_bytes": 3 * MIB,
}  # fmt: skip
STORM: Report = {
    "quick_ratio": 1.1, "answered": 1800, "refused": 0, "lost": 0, "wrong": 0, "idle_rss_bytes": 0,
    "peak_rss_bytes": 9 * MIB,
}  # fmt: skip


def result(name: str, *reports: Report, rows: tuple[str, ...] = ("04",)) -> dict[str, Any]:
    measured = {row: Measured(list(reports), 1) for row in rows}
    return run._result(name, SCENARIOS[name], measured, Effort())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_flood_that_harmed_nobody_has_passed() -> None:
    titles, _, line, _, counted = neighbours.table([result("hostile-pong-1", BESIDE)])
    shown = dict(zip(cells(titles), cells(line), strict=True))
    assert shown == {
        "scenario": "hostile-pong-1", "row": "04", "asked": "PING to PONG, p99, ms", "got": "12.50", "allowed": "50.0",
        "idle echo, p99": "1.5", "lookup p99": "20.0", "list p99": "40.0", "refused": "0", "lost": "0",
        "RSS above idle": "3 MiB", "budget": shown["budget"], "permits left": "0", "verdict": "passed",
    }  # fmt: skip
    assert counted == "1 of 1 passed, 0 missed."


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ({"ping_p99_ms": 50.5}, "PING to PONG, p99, ms"),
        ({"refused": 1}, "refused"),
        ({"lost": 1}, "lost"),
        ({"ping_lost": 1}, "ping_lost"),
        ({"held_at_end": 1}, "permits that are left at the end, bytes"),
        ({"peak_rss_bytes": 300 * MIB}, "peak RSS above idle, bytes"),
    ],
)
def test_each_harm_is_named(harm: Report, said: str) -> None:
    *_, line, _, counted = neighbours.table([result("hostile-pong-1", BESIDE | harm)])
    assert cells(line)[-1] == f"**missed**: {said}"
    assert counted == "0 of 1 passed, 1 missed."


def test_a_slow_machine_allows_twice_what_the_idle_echo_took() -> None:
    slow = BESIDE | {"ping_p99_ms": 79.0, "machine_p99_ms": 40.0}
    assert neighbours.missed(result("hostile-pong-1", slow), "04") == []


def test_a_mixed_storm_has_a_line_for_each_row_and_is_held_to_its_own_bound() -> None:
    late = result("mixed-storm", STORM, STORM | {"quick_ratio": 1.6}, STORM | {"quick_ratio": 1.7}, rows=("04s", "04"))
    lines = neighbours.table([late])[2:4]
    assert [cells(line)[1] for line in lines] == ["04s", "04"]
    assert all("times that without slow ones" in cells(line)[-1] for line in lines)
    assert cells(lines[0])[12] == "-"


def test_other_scenarios_have_no_such_table() -> None:
    assert neighbours.table([]) == []
    assert neighbours.table([{"scenario": "late-readers", "checks": []}]) == []


def test_one_command_runs_each_form_of_each_flood_and_the_mixed_storms() -> None:
    named = run.expanded(["hostile"])
    forms = [f"hostile-{flood}{form}" for flood in FLOODS for form in ("-1", "-10", "-10-apart")]
    assert [name for name in named if name.startswith("hostile-")] == forms
    assert set(named) - set(forms) == {"mixed-storm", "mixed-storm-again"}


@pytest.mark.parametrize("flood", FLOODS)
def test_neighbours_elsewhere_are_all_that_differs_apart(flood: str) -> None:
    together, apart = (SCENARIOS[f"hostile-{flood}-10{form}"] for form in ("", "-apart"))
    assert apart.options == (*together.options, "--neighbours-from", "127.0.0.2")
    assert replace(apart, options=together.options, title=together.title) == together


def test_the_page_has_one_table_of_all_floods() -> None:
    page = report.render([result(name, BESIDE) for name in ("hostile-pong-1", "hostile-pong-10", "hostile-ping-1")])
    assert page.count("###") == 1
    assert "3 of 3 passed, 0 missed." in page
