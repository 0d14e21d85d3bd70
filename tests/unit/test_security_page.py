"""docs/security.md names a test for every threat; each of them must exist, or the page promises what nothing shows."""

import ast
import re
from collections import defaultdict
from pathlib import Path

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
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ()
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_a_test_that_is_named_exists() -> None:
    named = defaultdict(set)
    for file, name in NAMED.findall(PAGE):
        named[file].add(name)
    missing = [f"{file}::{name}" for file in named for name in named[file] - functions(ROOT / file)]
    assert named
    assert not missing, "\n".join(missing)


def test_each_threat_has_a_test() -> None:
    threats = ROW.findall(TABLES)
    found = {threat: THREAT.fullmatch(threat.replace("Shown by\n", "Shown by ")) for threat in threats}
    without = [threat for threat, parts in found.items() if parts is None or not NAMED.search(parts[3])]
    assert threats
    assert not without, "\n".join(without)


def test_no_threat_that_had_to_be_there_is_missing() -> None:
    assert [threat for threat in THREATS if threat not in PAGE] == []
