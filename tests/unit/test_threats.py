"""docs/security.md gives each threat an id, and `threat("id")` marks the tests that show what stops it."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
# The last section is about what an operator decides, not about threats.
ROWS = re.findall(r"^- .+(?:\n  .+)*", PAGE.partition("\n## What an operator decides")[0], re.MULTILINE)
ID = re.compile(r"- \*\*.+?\*\*\s+\(`([a-z0-9]+(?:-[a-z0-9]+)+)`\):\s", re.DOTALL)


def ids_in_marks(source: str) -> set[str]:
    """Return the ids on test functions; a mark on anything else marks no test."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.threat":
                    found |= {ast.literal_eval(argument) for argument in mark.args}
    return found


def files_by_id() -> dict[str, list[str]]:
    files = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        # Neither `make test` nor `make rest` runs what needs a release.
        if path.parent.name != "release" and "mark.threat(" in source:
            for threat in ids_in_marks(source):
                files[threat].append(str(path.relative_to(ROOT)))
    return files


def test_each_threat_has_an_id_of_its_own_and_a_test() -> None:
    found = {row: ID.match(row) for row in ROWS}
    ids = Counter(match[1] for match in found.values() if match)
    marked = files_by_id()
    wrong = [
        *(f"no id: {row}" for row, match in found.items() if match is None),
        *(f"the id of {count} threats: {threat}" for threat, count in ids.items() if count > 1),
        *(f"no test: {threat}" for threat in ids if threat not in marked),
        *(f"not on the page: {threat}, {', '.join(marked[threat])}" for threat in sorted(marked.keys() - ids.keys())),
    ]
    assert ids
    assert not wrong, "\n".join(wrong)
