"""The runbooks: what they tell people to ask can be asked, and what they tell people to run can be run.

Keys and metrics in their prose are held against the tables by tests/unit/test_docs.py, as on every page.
"""

import re
import shlex
from pathlib import Path

from proxy.cli.main import whole_parser
from scripts.alert_table import names
from tests.support.each import each
from tests.support.programs import promtool
from tests.support.promql import unknown_names
from tests.unit.monitoring.test_alerts import NAMED

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs/runbooks").glob("*.md"))
ALL_PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]

of_an_alert = each("page", [page for page in PAGES if page.stem != "README"], ids=lambda page: page.stem)


def block(page: Path, language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line for text in found for line in text.splitlines()]


def test_every_query_is_one_that_prometheus_can_read_of_names_that_exist(tmp_path: Path) -> None:
    queries = [line for page in PAGES for line in block(page, "promql")]
    assert {name for query in queries for name in unknown_names(query, NAMED)} == set()
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(queries)]
    promtool("check", {"groups": [{"name": "runbooks", "rules": rules}]}, tmp_path)


@of_an_alert
def test_each_command_of_the_proxy_is_one_that_it_takes(page: Path) -> None:
    for line in block(page, "console"):
        assert line.startswith("$ "), line
        command = line.removeprefix("$ ").partition(" | ")[0]
        if command.startswith("pulsar-proxy "):
            whole_parser().parse_args(shlex.split(command)[1:])


@each("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT))
def test_each_alert_that_is_spoken_of_exists(page: Path) -> None:
    spoken = set(re.findall(r"\bPulsarProxy[A-Z]\w+", page.read_text(encoding="utf-8")))
    assert spoken <= set(names())
