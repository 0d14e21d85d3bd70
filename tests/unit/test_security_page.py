"""docs/security.md names a test for every threat; each of them must exist, or the page promises what nothing shows."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
# The last section is about what an operator decides, not about threats.
TABLES = PAGE.partition("\n## What an operator decides")[0]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)`")
ROW = re.compile(r"^- \*\*(.+(?:\n  .+)*)", re.MULTILINE)
THREAT = re.compile(r"(.+?)\*\*: (.+) Shown by (.+)", re.DOTALL)
THREATS = (
    "SSRF",
    "original_",
    "handshake",
    "TLS version",
    "header injection",
    "log injection",
    "secrets are hidden",
    "metrics",
)


def functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert (ROOT / file).is_file(), file
    assert name in functions(ROOT / file)


@pytest.mark.parametrize("row", ROW.findall(TABLES), ids=lambda row: " ".join(str(row).split("**")[0].split())[:60])
def test_each_threat_has_a_test(row: str) -> None:
    found = THREAT.fullmatch(row.replace("Shown by\n", "Shown by "))
    assert found is not None
    assert NAMED.search(found[3])


@pytest.mark.parametrize("threat", THREATS)
def test_no_threat_that_had_to_be_there_is_missing(threat: str) -> None:
    assert threat in PAGE
