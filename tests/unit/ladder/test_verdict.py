"""How the ladder judges: worst runs, medians, budgets."""

from typing import Any

import pytest

from benchmarks.ladder import verdict
from benchmarks.ladder.measure import Measured
from benchmarks.ladder.rows import MIB, ROWS, TLS_CONNECTION_BYTES, Bound, Budget, Ratio, Scenario


def measured(quantity: str, *values: float) -> Measured:
    return Measured([{quantity: value, "refused": 0} for value in values])


def scenario(**fields: Any) -> Scenario:
    return Scenario("a load", "memory", ("04",), **fields)


def the_check(found: list[dict[str, Any]], what: str) -> dict[str, Any]:
    (check,) = [check for check in found if check["what"] == what]
    return check


def test_a_bound_is_asked_of_the_worst_run() -> None:
    asked = scenario(bounds=(Bound("ping", "ms", 20.0),))
    check = the_check(verdict.checks(asked, {"04": measured("ms", 1, 2, 21)}), "ping")
    assert (check["got"], check["reached"]) == (21, False)


def test_the_worst_of_what_must_be_many_is_the_least() -> None:
    asked = scenario(bounds=(Bound("answers", "answered", 100, at_most=False),))
    check = the_check(verdict.checks(asked, {"04": measured("answered", 100, 99, 100)}), "answers")
    assert (check["got"], check["reached"]) == (99, False)


def test_a_typical_bound_is_asked_of_the_median() -> None:
    asked = scenario(bounds=(Bound("ratio", "ratio", 1.25, typical=True),))
    check = the_check(verdict.checks(asked, {"04": measured("ratio", 1.0, 9.0, 1.2)}), "ratio")
    assert (check["got"], check["reached"]) == (1.2, True)


def test_nothing_is_asked_of_peers_nor_of_the_version_before() -> None:
    asked = scenario(bounds=(Bound("ping", "ms", 20.0),))
    peers = {row: measured("ms", 99) for row, known in ROWS.items() if known.server != "ours" or known.before}
    assert {"04b", "06"} <= peers.keys()
    assert verdict.checks(asked, peers) == []


def test_a_lost_ping_is_a_fault() -> None:
    rows = {"04": Measured([{"ping_lost": 1}])}
    assert not the_check(verdict.checks(scenario(), rows), "ping_lost")["reached"]


@pytest.mark.parametrize("row", ["04", "04t"])
def test_the_budget_follows_the_scenarios_limits(row: str) -> None:
    narrow = (("maxTopicListInFlightHeapMemSizeMB", "16"), ("maxTopicListInFlightDirectMemSizeMB", "4"))
    load = scenario(budget=Budget(connections=1000, answer_bytes=1_000_000), settings=narrow)
    assert verdict.budget_bytes(load, row) == int(1.15 * 20 * MIB) + 1000 * 8192 + 2_000_000


def test_a_connection_under_tls_may_cost_more() -> None:
    load = scenario(budget=Budget(connections=1000, answer_bytes=0))
    tls = scenario(budget=Budget(connections=1000, answer_bytes=0), tls="in")
    more = verdict.budget_bytes(tls, "04") - verdict.budget_bytes(load, "04")
    assert more == 1000 * TLS_CONNECTION_BYTES


def test_the_largest_growth_of_all_runs_is_held_against_the_budget() -> None:
    load = scenario(budget=Budget(connections=0, answer_bytes=0), settings=())
    limit = verdict.budget_bytes(load, "04")
    grown = Measured([{"idle_rss_bytes": 5, "peak_rss_bytes": 5 + limit + over} for over in (0, 1, -1)])
    check = the_check(verdict.checks(load, {"04": grown}), "peak RSS above idle, bytes")
    assert (check["got"], check["reached"]) == (limit + 1, False)


def test_a_row_that_is_optional_does_not_invalidate() -> None:
    load = Scenario("a load", "memory", ("04", "04b", "06"), optional=("04b",))
    assert verdict.invalid(load, {"04": measured("x", 1)}) == ["row 06 was not run"]


def test_a_ratio_without_one_of_its_rows_is_not_judged() -> None:
    assert verdict.ratio_json(Ratio("04", ("04b",), 0.97), {"04": measured("per_second", 1)}, "per_second") is None


@pytest.mark.parametrize(("floor", "required"), [(1.0, 20.0), (30.0, 60.0)])
def test_a_bound_with_a_floor_allows_twice_the_floor_if_that_is_more(floor: float, required: float) -> None:
    asked = scenario(bounds=(Bound("ping", "ms", 20.0, floor="idle"),))
    runs = Measured([{"ms": 50, "idle": floor, "refused": 0}])
    check = the_check(verdict.checks(asked, {"04": runs}), "ping")
    assert (check["required"], check["reached"]) == (required, required >= 50)
