"""The tables of the ladder fit together: rows exist, options can be filled in, the report knows what it prints."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ladder import disk, report, results, run, servers, verdict
from benchmarks.ladder.processes import Child
from benchmarks.ladder.rows import CONNECTION_BYTES, NAMES, ROWS, TLS_CONNECTION_BYTES, Scenario
from benchmarks.ladder.scenarios import SCENARIOS
from benchmarks.ladder.servers import Place, Running, _haproxy_lines
from proxy.app.memory import budget
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


@every_scenario
def test_ratios_of_processor_time_are_between_rows_that_have_a_proxy(scenario: Scenario) -> None:
    asked = [ratio for ratio in scenario.ratios if ratio.quantity == "cpu_us"]
    assert all(ratio.at_most for ratio in asked)
    assert all(ROWS[row].server != "none" for ratio in asked for row in (ratio.over, *ratio.under))
    assert scenario.kind == "paired" or not asked


@every_scenario
def test_throughput_with_and_without_a_proxy_is_held_against_the_lead_over_peers(scenario: Scenario) -> None:
    leads = [ratio for ratio in scenario.ratios if ratio.validity]
    assert len(leads) == (scenario.kind == "paired" and "01" in scenario.rows)
    assert all(ratio.over == "01" and set(ratio.under) <= {"06", "07"} for ratio in leads)


@pytest.mark.parametrize(
    ("name", "peers", "times"),
    [
        ("lists", ("06",), 4.0),
        ("lists-storm", ("06",), 4.0),
        ("relay-echo", ("06", "07"), 1.5),
        ("relay-64k", ("06", "07"), 1.5),
        ("relay-128k", ("06", "07"), 1.25),
        ("tls-relay-128k", ("06",), 1.25),
    ],
)
def test_so_far_ahead_must_the_run_without_a_proxy_be(name: str, peers: tuple[str, ...], times: float) -> None:
    (lead,) = [ratio for ratio in SCENARIOS[name].ratios if ratio.validity]
    assert (lead.under, lead.required) == (peers, times)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.server_of])
def test_a_row_under_another_load_is_its_server_and_nothing_else(name: str) -> None:
    row, server = ROWS[name], ROWS[ROWS[name].server_of]
    assert replace(row, title="", server_of="", load=(), neighbour=False) == replace(server, title="")
    assert bool(row.load) != row.neighbour


def test_lists_of_other_names_have_equal_bytes() -> None:
    usual = 10_000 * (1 + 1 + 100)
    for form, _ in NAMES.values():
        count, size = (int(number) for number in form.removesuffix("u").split("x"))
        assert count * (1 + (1 if size < 128 else 2) + size) == pytest.approx(usual, rel=0.001)


def test_lists_are_compared_with_a_relay_that_copies_and_bulk_with_one_that_splices() -> None:
    bare = {name: {row for row in known.rows if ROWS[row].server == "bare"} for name, known in SCENARIOS.items()}
    assert (bare["lists"], bare["relay-echo"]) == ({"00c"}, {"00c"})
    assert bare["relay-64k"] == bare["relay-128k"] == {"00s"}
    # Under TLS a bare relay opens and seals on the clients' side only.
    under_tls = {name: bare[name] for name, known in SCENARIOS.items() if known.tls and bare[name]}
    assert under_tls == {key: {"00t", "00t-2"} for key in ("tls-relay-echo", "tls-relay-64k", "tls-relay-128k")}
    assert {ROWS[row].threads for rows in (bare["lists"], bare["relay-64k"]) for row in rows} == {1}


def test_haproxy_is_as_shipped_unless_a_row_says_otherwise() -> None:
    place = Place(Running(Child.__new__(Child), 1, 0.0), port=2, web_port=3, tls_port=4, secured=None)
    lines = {name: [line.strip() for line in _haproxy_lines(ROWS[name], place)] for name in ("07", "07s", "07-1")}
    assert set(lines["07s"]) - set(lines["07"]) == {"tune.bufsize 65536", "maxpipes 512", "option splice-auto"}
    assert set(lines["07-1"]) - set(lines["07"]) == {"nbthread 1"}


def test_the_page_of_results_says_what_each_row_is() -> None:
    page = (results.RESULTS / "README.md").read_text(encoding="utf-8")
    table = page[: page.index("<!-- ladder:")]
    named = [name for line in table.splitlines() if line.startswith("| 0") for name in line.split("|")[1].split(",")]
    assert sorted(name.strip() for name in named) == sorted(ROWS)


def test_each_relay_under_tls_must_reach_the_java_proxy() -> None:
    relays = [scenario for scenario in SCENARIOS.values() if scenario.tls and scenario.command == "relay"]
    asked = [ratio for scenario in relays for ratio in scenario.ratios if ratio.required and not ratio.validity]
    assert [(ratio.over, ratio.under, ratio.required) for ratio in asked] == [("02", ("06",), 1.0)] * 6


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
