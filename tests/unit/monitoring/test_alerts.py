"""The alert rules, evaluated by promtool over series that fire them and series that do not."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.app.metrics.table import INSTRUMENTS
from proxy.config.config import Config
from scripts.alert_table import ALERTS, PIP_442, RECORDS, Alert, Record, late_count, late_ratio, names
from scripts.generate_alerts import RULES
from tests.support.each import each
from tests.support.programs import promtool, ran
from tests.support.promql import Row, unknown_names
from tests.support.tools import tool
from tests.unit.monitoring.alert_cases import CASES, LABELS, Case, Series

ROOT = Path(__file__).resolve().parents[3]
TABLE: dict[tuple[str, str], Alert] = {(alert.name, alert.severity): alert for alert in ALERTS}
# Often: what fires for a while only, and then is over, was not silent.
SILENT = tuple((seconds, ()) for seconds in range(300, 3001, 300))
HOLDS = re.compile(r"(\d+)m")
WORD = re.compile(r"\b(?:max|topicList|client)[A-Z]\w+")


def alert_of(case: Case) -> Alert:
    return TABLE[case.alert, case.severity]


def holds_seconds(alert: Alert) -> int:
    found = HOLDS.fullmatch(alert.holds)
    assert found, alert.holds
    return 60 * int(found[1])


def input_series(series: Series) -> list[dict[str, str]]:
    labels = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
    filled = ((name.replace("{S", f"{{{labels}") if "{" in name else f"{name}{{{labels}}}") for name in series)
    return [{"series": name, "values": values} for name, values in zip(filled, series.values(), strict=True)]


def firing(case: Case, *, told: bool) -> dict[str, Any]:
    alert = alert_of(case)
    labels = {name: value for name, value in (LABELS | case.labels).items() if value} | {"severity": case.severity}
    text = {"summary": case.summary, "description": alert.first, "runbook_url": alert.runbook}
    return {"exp_labels": labels, "exp_annotations": text if told else {}}


def at(case: Case, series: Series, *moments: tuple[int, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    return {
        "interval": f"{case.step_seconds}s",
        "input_series": input_series(series),
        "alert_rule_test": [
            {"eval_time": f"{seconds}s", "alertname": case.alert, "exp_alerts": list(expected)}
            for seconds, expected in moments
        ],
    }


def rule_of(case: Case, *, told: bool) -> dict[str, Any]:
    """Give a rule file with the rule of `case` alone, and what its group records: its sister of another severity would
    answer as well.
    """
    [[rule, recorded]] = [
        [rule, [other for other in group["rules"] if "record" in other]]
        for group in loaded_rules()["groups"]
        for rule in group["rules"]
        if "alert" in rule and (rule["alert"], rule["labels"]["severity"]) == (case.alert, case.severity)
    ]
    return {"groups": [{"name": "one", "rules": [*recorded, rule | ({} if told else {"annotations": {}})]}]}


@cache
def loaded_rules() -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    return rules


def questions() -> Iterator[tuple[str, Case, bool, list[dict[str, Any]]]]:
    """Yield what promtool is asked: a name, whose rule, whether texts count, and the tests in its format."""
    for number, case in enumerate(CASES):
        step = case.step_seconds
        # A rule is looked at in steps.
        seconds = case.begins_seconds + -(-holds_seconds(alert_of(case)) // step) * step
        fires = [firing(case, told=False)]
        moments = [(seconds - step, []), (seconds, fires)]
        if case.over_seconds is not None:
            moments += [(case.over_seconds - step, fires), (case.over_seconds, [])]
        yield f"fires-{number}", case, False, [at(case, case.fires, *moments)]
        yield f"told-{number}", case, True, [at(case, case.fires, (case.told_seconds, [firing(case, told=True)]))]
        yield f"silent-{number}", case, False, [at(case, series, *SILENT) for series in case.silent]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Have promtool answer all questions in one run, a quarter of a second each otherwise; gives its words by name."""
    directory = tmp_path_factory.mktemp("rules")
    names = []
    for name, case, told, tests in questions():
        given = {"rule_files": [f"rules-{name}.yaml"], "evaluation_interval": f"{case.step_seconds}s", "tests": tests}
        (directory / f"rules-{name}.yaml").write_text(json.dumps(rule_of(case, told=told)))
        (directory / f"{name}.yaml").write_text(json.dumps(given))
        names.append(name)
    asked = [tool("promtool"), "test", "rules", *(f"{name}.yaml" for name in names)]
    output = ran(asked, cwd=directory, capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    said = {}
    for part in output.split("Unit Testing:")[1:]:
        file, _, verdict = part.strip().partition("\n")
        said[file.strip().removesuffix(".yaml")] = verdict.strip()
    assert said.keys() == set(names), output
    return said


@each("kind", ["fires", "told", "silent"])
def test_it_fires_once_it_has_held_tells_its_values_and_is_silent_beside_the_threshold(
    kind: str, verdicts: Mapping[str, str]
) -> None:
    said = {str(case): verdicts[f"{kind}-{number}"] for number, case in enumerate(CASES)}
    assert {case: verdict for case, verdict in said.items() if verdict != "SUCCESS"} == {}


def test_each_alert_has_series_that_fire_it_and_series_that_do_not() -> None:
    assert {(case.alert, case.severity) for case in CASES} == set(TABLE)
    assert {(case.alert, case.severity) for case in CASES if case.silent} == set(TABLE)


def test_the_four_of_pip_442_are_its_own_expressions() -> None:
    own = {alert.expression.replace("pulsar_proxy_topic_list_", "") for alert in PIP_442}
    assert own == {
        "heap_memory_used_bytes / heap_memory_limit_bytes > 0.8",
        "heap_queue_size / heap_queue_max_size > 0.9",
        "rate(heap_timeout_total[5m]) > 1",
        'heap_wait_time_ms{quantile="0.99"} > 10000',
    }


class Recorded:
    """A recording rule, as far as a query that asks for its series sees it."""

    labels = ()

    def __init__(self, record: Record) -> None:
        self.exposed_name = record.name


NAMED: tuple[Row, ...] = (*INSTRUMENTS, *map(Recorded, RECORDS))


@each("record", RECORDS, ids=lambda record: record.name)
def test_what_is_recorded_is_of_metrics_that_exist(record: Record) -> None:
    assert unknown_names(record.expression, INSTRUMENTS) == set()
    assert record.name.startswith("pulsar_proxy:")
    assert any(record.name in alert.expression for alert in ALERTS)


def test_what_is_recorded_adds_up_all_proxies_of_a_service(tmp_path: Path) -> None:
    # Two proxies: one answers all 3,000 of an hour in time, the other is late with half of 1,000.
    series = {
        f'pulsar_proxy_lists_{which}_total{{cluster="blue",job="proxy",instance="{instance}"}}': f"0+{growth}x120"
        for instance, due, prompt in (("a", 25, 25), ("b", 8, 4))
        for which, growth in (("due", due), ("prompt", prompt))
    }
    labels = '{cluster="blue", job="proxy"}'
    expected = {late_ratio("1h"): 4 / 33, late_ratio("5m"): 4 / 33, late_count("1h"): 480.0}
    given = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"round({name}, 0.0001)",
                        "eval_time": "1h",
                        "exp_samples": [{"labels": labels, "value": round(value, 4)}],
                    }
                    for name, value in expected.items()
                ],
            }
        ],
    }
    promtool("test", given, tmp_path)


@each("alert", ALERTS, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_its_metrics_labels_and_keys_exist(alert: Alert) -> None:
    assert unknown_names(alert.expression, NAMED) == set()
    assert set(WORD.findall(alert.first)) <= {key.name for key in Config.keys()}  # noqa: SIM118


def test_a_runbook_without_an_alert_is_found() -> None:
    pages = {page.stem for page in (ROOT / "docs/runbooks").glob("*.md")}
    assert pages == {*names(), "README"}
