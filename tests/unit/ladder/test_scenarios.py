"""The tables of the ladder fit together: rows exist, options can be filled in, the report knows what it prints."""

from pathlib import Path

import pytest

from benchmarks.ladder import disk, report, run, servers, verdict
from benchmarks.ladder.rows import CONNECTION_BYTES, ROWS, TLS_CONNECTION_BYTES, Scenario
from benchmarks.ladder.scenarios import SCENARIOS
from proxy.app import budget
from proxy.config.keys_table import ConfigKeys
from tests.support.proxies.proxy_under_test import config_for

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())


@every_scenario
def test_rows_of_a_scenario_exist(scenario: Scenario) -> None:
    judged = {row for ratio in scenario.ratios for row in (ratio.over, *ratio.under)}
    assert set(scenario.rows) <= ROWS.keys()
    assert judged | set(scenario.optional) <= set(scenario.rows)


@every_scenario
def test_settings_are_keys_that_the_proxy_knows(scenario: Scenario) -> None:
    known = {key.name for key in ConfigKeys.keys()}  # noqa: SIM118  # not a dict
    asked = {key for row in scenario.rows for key, _ in ROWS[row].settings + scenario.settings}
    assert asked <= known


@every_scenario
def test_an_address_in_the_options_is_one_that_is_there(scenario: Scenario) -> None:
    filled = " ".join(scenario.options).format_map({"broker": "B", "web": "W", "second": "S"})
    behind = " ".join(scenario.broker).format_map({"second": "S"})
    assert scenario.second is not None or "S" not in (filled + behind).split()


@every_scenario
def test_the_report_has_words_for_each_ratio_and_columns_for_each_memory_table(scenario: Scenario) -> None:
    assert all(ratio.quantity in report.QUANTITIES for ratio in scenario.ratios)
    assert bool(scenario.columns) == (scenario.kind == "memory")


@every_scenario
def test_a_scenario_says_tls_in_name_and_title_if_it_is_one(scenario: Scenario) -> None:
    (name,) = [name for name, known in SCENARIOS.items() if known is scenario]
    assert bool(scenario.tls) == name.startswith("tls-") == ("TLS" in scenario.title)
    assert (scenario.tls == "both") == name.startswith("tls-both-")


def test_each_relay_under_tls_must_reach_the_java_proxy() -> None:
    relays = [scenario for scenario in SCENARIOS.values() if scenario.tls and scenario.command == "relay"]
    asked = [ratio for scenario in relays for ratio in scenario.ratios if ratio.under == ("06",)]
    assert [(ratio.over, ratio.required) for ratio in asked] == [("02", 1.0)] * 6


def test_groups_stand_for_their_scenarios_and_none_runs_twice() -> None:
    assert run.expanded(["all"]) == list(SCENARIOS)
    tls = run.expanded(["tls-idle", "tls"])
    assert tls[0] == "tls-idle"
    assert sorted(tls) == sorted(name for name in SCENARIOS if name.startswith("tls-"))


def test_a_figure_that_a_run_lacks_is_a_dash() -> None:
    column = SCENARIOS["ping-storm"].columns[0]
    assert report._cell(column, [{"ping_p50_ms": 1.25}, {"ping_p50_ms": 3.0}, {"ping_p50_ms": 2.0}]) == "2.0"
    assert report._cell(column, [{"ping_p50_ms": 1.25}, {}]) == "-"


def test_connections_may_cost_what_the_proxy_s_budget_says() -> None:
    assert TLS_CONNECTION_BYTES == budget.TLS_CONNECTION_BYTES
    assert CONNECTION_BYTES == budget.CONNECTION_AT_REST_BYTES
    spilling = config_for("pulsar://127.0.0.1:6650", topicListSpillDirectory="/lists")
    assert budget.lists_on_disk(spilling) == verdict.SPILL_BYTES


def test_the_disk_is_measured_where_lists_go_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MEASURED_BYTES", 2 * disk.STEP_BYTES)
    monkeypatch.setattr(servers, "RUN", tmp_path)
    assert run._disk(["01", "04"]) == {}
    found = run._disk(["01", "04s"])["disk"]
    assert found["write_mb_per_second"] > 0
    assert found["read_mb_per_second"] > 0
