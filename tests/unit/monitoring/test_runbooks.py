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
from tests.support.walkthrough import not_run
from tests.unit.monitoring.test_alerts import NAMED

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs/runbooks").glob("*.md"))
ALL_PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
of_every_page = each("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT))


def test_every_query_is_one_that_prometheus_can_read_of_names_that_exist(tmp_path: Path) -> None:
    texts = [text for page in PAGES for text in re.findall(r"```promql\n(.*?)```", page.read_text(), re.DOTALL)]
    queries = [line for text in texts for line in text.splitlines()]
    assert {name for query in queries for name in unknown_names(query, NAMED)} == set()
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(queries)]
    promtool("check", {"groups": [{"name": "runbooks", "rules": rules}]}, tmp_path)


@of_every_page
def test_each_command_that_no_test_runs_is_of_this_proxy_and_each_file_in_it_exists(page: Path) -> None:
    for line in not_run(page.read_text(encoding="utf-8")):
        program, *words = shlex.split(line.partition(" | ")[0].partition(" && ")[0], comments=True)
        if program == "pulsar-proxy" and words[-1] not in ("--help", "--version"):
            whole_parser().parse_args(words)
        for file in re.findall(r"(?<![\w./])(?:deploy|helm)/[\w./@-]+", line):
            assert (ROOT / file).exists(), line


@of_every_page
def test_each_alert_that_is_spoken_of_exists(page: Path) -> None:
    spoken = set(re.findall(r"\bPulsarProxy[A-Z]\w+", page.read_text(encoding="utf-8")))
    assert spoken <= set(names())
