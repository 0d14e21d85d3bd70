"""The tables of docs/scaling.md: where each cost comes from, and what the real run must show for the page."""

from statistics import median

import pytest

from benchmarks.ladder.results import RESULTS, load
from benchmarks.scaling import costs, tables
from benchmarks.scaling.model import Fleet
from scripts import generate_scaling
from scripts.generated import ROOT

PAGE = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
# How far a simulated figure may be from the real one before the page has to say something else.
PROCESSOR_OFF, SERVED_OFF = 0.5, 0.5


@pytest.mark.parametrize("tls", [False, True])
def test_each_cost_is_positive_and_names_a_result_that_is_there(tls: bool) -> None:
    for row in costs.sheet(tls=tls).rows:
        assert row.seconds > 0, row
        names = [word.strip(",") for word in row.source.replace("row 04 of ", "").split()]
        assert (RESULTS / f"{names[0]}.json").exists(), row.source


def test_reading_and_writing_a_list_of_a_megabyte_add_up_to_what_was_measured() -> None:
    paid = costs.sheet().costs
    whole = paid.request + (paid.read_byte + paid.write_byte) * tables.COMPARED_STORM.list_bytes
    assert whole == pytest.approx(costs._processor("event-price", costs.ROW), rel=1e-6)


def test_the_first_row_of_the_storm_is_what_the_simulation_gives() -> None:
    # The others are held by `scripts.generate --check`; this is the short look of the unit tests.
    first = next(line for line in tables.compared() if line.startswith("| one list | 5 |"))
    assert first in PAGE


def test_each_storm_and_fleet_of_the_real_run_was_answered_in_full() -> None:
    (found,) = load(["scaling-real"])
    assert {(run["name"], run["proxies"]) for run in found["runs"]} == {
        ("equal", 1), ("equal", 3), ("distinct", 1), ("distinct", 3),
    }  # fmt: skip
    for run in found["runs"]:
        assert (run["answered"], run["refused"], run["lost"], run["wrong"]) == (run["clients"], 0, 0, 0)


def test_the_logs_of_three_proxies_tell_what_their_clients_and_their_broker_saw() -> None:
    (found,) = load(["scaling-real"])
    for run, log in zip(found["runs"], found["logs"], strict=True):
        assert (log["requests"], log["answered"], log["proxies"]) == (run["clients"], run["answered"], run["proxies"])
        assert log["questions"] == run["questions"]
        assert log["served_seconds"] <= run["seconds_to_end"] + 0.5


def test_the_simulation_is_as_near_to_the_real_run_as_the_page_says() -> None:
    (found,) = load(["scaling-real"])
    for (name, proxies), runs in generate_scaling.by_storm(found).items():
        simulated = [tables.real_storm(run, found, found["machine"]["cores"]) for run in runs]
        processor = median(each.proxy_seconds for each in simulated) / median(run["proxy_seconds"] for run in runs)
        served = median(each.served_seconds for each in simulated) / median(run["seconds_to_end"] for run in runs)
        assert abs(processor - 1) <= PROCESSOR_OFF, (name, proxies, processor)
        assert abs(served - 1) <= SERVED_OFF, (name, proxies, served)


def test_a_fleet_of_the_advice_holds_and_a_smaller_one_does_not() -> None:
    asked = tables.ADVICE[0]
    found = tables.advised(asked)
    assert found.proxies is not None
    assert tables.holds(found.outcome, asked.storm)
    paid = costs.sheet().costs
    smaller = tables.play(asked.storm, Fleet(found.proxies - 2), paid, step=tables.SEARCH_STEP)
    assert not tables.holds(smaller, asked.storm)
