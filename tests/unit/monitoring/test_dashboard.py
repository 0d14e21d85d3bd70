"""The dashboard: every query is PromQL, every name in it exists, and Grafana finds what it needs in the file."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.app.metrics.table import INSTRUMENTS
from scripts.dashboard_table import ROWS, VARIABLES, Panel
from scripts.generate_dashboard import FILE
from tests.support.each import each
from tests.support.programs import promtool
from tests.support.promql import substituted, unknown_names

BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
ALL = [panel for row in ROWS for panel in row.panels]
panel_by_panel = each("panel", ALL, ids=lambda panel: panel.title)


def strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from strings(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from strings(value)


def test_every_query_is_one_that_prometheus_can_read(tmp_path: Path) -> None:
    expressions = [*QUERIES, *(annotation["expr"] for annotation in BOARD["annotations"]["list"])]
    rules = [{"record": f"query:{number}", "expr": substituted(text)} for number, text in enumerate(expressions)]
    said = promtool("check", {"groups": [{"name": "dashboard", "rules": rules}]}, tmp_path)
    assert f"{len(expressions)} rules found" in said


@panel_by_panel
def test_its_metrics_and_labels_exist(panel: Panel) -> None:
    for query in panel.queries:
        assert unknown_names(query.expression, INSTRUMENTS, VARIABLES) == set()


def test_all_proxies_include_those_without_a_cluster_name() -> None:
    whole = {
        variable["name"]: variable["allValue"] for variable in BOARD["templating"]["list"] if "allValue" in variable
    }
    assert {name: re.fullmatch(pattern, "") is not None for name, pattern in whole.items()} == dict.fromkeys(
        VARIABLES, True
    )


def test_every_variable_is_declared_and_no_data_source_is_fixed() -> None:
    declared = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$(?!__)\{?(\w+)", "\n".join(strings(BOARD))))
    assert used == declared
    sources = [tree["datasource"] for tree in (*PANELS, *BOARD["annotations"]["list"]) if "datasource" in tree]
    assert {source["uid"] for source in sources} == {"${datasource}"}


def test_every_metric_of_a_query_is_of_the_proxies_that_are_chosen() -> None:
    for query in QUERIES:
        selectors = re.findall(r"\b(?:pulsar|process)_\w+(\{[^}]*\})?", query)
        assert all(all(f'{name}=~"${name}"' in selector for name in VARIABLES) for selector in selectors), query


@each(
    "query",
    [
        "rate(pulsar_proxy_binary_op_total[5m])",
        'pulsar_proxy_disconnects_total{reason="x"}',
        "sum by (outcome) (pulsar_proxy_disconnects_total)",
        "pulsar_proxy_active_connections_total",
    ],
)
def test_a_name_that_does_not_exist_is_found(query: str) -> None:
    assert unknown_names(query, INSTRUMENTS)
