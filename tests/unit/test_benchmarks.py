"""Every benchmark still starts: one that nobody runs for months imports, measures and prints."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.ladder.rows import ROWS, Scenario
from benchmarks.ladder.scenarios import SCENARIOS
from proxy.config.keys_table import ConfigKeys
from tests.support.each import each
from tests.support.programs import succeeded

ROOT = Path(__file__).resolve().parents[2]
MICRO = sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))


def said_by(benchmark: str, option: str) -> str:
    return succeeded([sys.executable, "-m", f"benchmarks.{benchmark}", option], cwd=ROOT)


@pytest.mark.parametrize("benchmark", MICRO)
def test_a_micro_benchmark_runs_and_prints_its_figures(benchmark: str) -> None:
    assert {"python", "machine"} < json.loads(said_by(benchmark, "--quick")).keys()


@pytest.mark.parametrize("benchmark", ["ladder.run", "pipeline", "real_broker", "overload_real"])
def test_a_long_benchmark_starts(benchmark: str) -> None:
    assert "--quick" in said_by(benchmark, "--help")


@each(("name", "scenario"), SCENARIOS.items())
def test_a_scenario_of_the_ladder_has_rows_that_exist_and_keys_that_the_proxy_knows(
    name: str, scenario: Scenario
) -> None:
    assert set(scenario.rows) <= ROWS.keys()
    known = {key.name for key in ConfigKeys.keys()}  # noqa: SIM118  # not a dict
    assert {key for row in scenario.rows for key, _ in ROWS[row].settings + scenario.settings} <= known, name
