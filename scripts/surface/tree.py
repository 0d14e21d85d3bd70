"""Read files of the checkout: log events, generated tables, event schema, charts, monitoring, transcripts.

Pages of docs/ are found by name, since folders of docs/ may change.
"""

import ast
import hashlib
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.generated import ROOT
from scripts.helm.render import EXAMPLE, GATEWAY, LoadedChart, read_values
from scripts.surface.text import without

_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})
_HUMAN: Final = frozenset({"title", "description", "summary"})
_QUERIES: Final = frozenset({"expr", "definition", "query", "legendFormat", "unit", "uid"})
# A bar that is escaped is part of its cell.
_BAR: Final = re.compile(r"(?<!\\)\|")


def page(name: str) -> str:
    """Return the text of the only file of docs/ with this name."""
    (path,) = (ROOT / "docs").rglob(name)
    return path.read_text(encoding="utf-8")


def table(name: str) -> dict[str, list[str]]:
    """Return the rows of all tables of a page by their first cell, without the column "meaning"."""
    rows, left_out = {}, -1
    for line in page(name).splitlines():
        cells = [cell.strip() for cell in _BAR.split(line)[1:-1]]
        if "meaning" in cells:
            left_out = cells.index("meaning")
        elif line.startswith("|") and not line.startswith("|---"):
            rows[cells[0]] = [cell for number, cell in enumerate(cells) if number not in (0, left_out)]
    return rows


def known_keys() -> list[str]:
    """Return every key of this proxy and of the Java proxy, in order."""
    found = re.findall(r"^\| `(\w+)` \|", page("configuration.md") + page("compatibility.md"), re.MULTILINE)
    return sorted(set(found))


def event_schema() -> Any:
    return without(json.loads(page("event-v1.schema.json")), _HUMAN)


def log_events() -> set[str]:
    """Return the first argument of every logger call in proxy/, where that is a text or a name for texts."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "proxy").rglob("*.py"))]
    constants = _texts(_assigned(node for tree in trees for node in tree.body))
    return set().union(*(events_of(tree, constants) for tree in trees))


def events_of(tree: ast.Module, constants: Mapping[str, set[str]]) -> set[str]:
    """Return the events of one module; `constants` are those of all modules, which it may import."""
    assigned = list(_assigned(ast.walk(tree)))
    # A name for a method of a logger: `write = log.debug if routine else log.info`.
    writers = {name for name, value in assigned if isinstance(value, ast.Attribute) and value.attr in _LEVELS}
    texts, found = _texts(assigned), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else None
            if method in _LEVELS or (isinstance(node.func, ast.Name) and node.func.id in writers):
                found += [("", value) for value in _choices(node.args[0])]
    named = {value.id for _, value in found if isinstance(value, ast.Name)}
    imported = {name for name in named if name.isupper() and name not in texts}
    return _texts(found)[""].union(*(texts[name] for name in named), *(constants.get(name, ()) for name in imported))


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name with each value that an assignment can give it, also pair by pair."""
    for node in nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    yield from ((name.id, each) for each in _choices(value))


def _choices(value: ast.expr) -> tuple[ast.expr, ...]:
    return (*_choices(value.body), *_choices(value.orelse)) if isinstance(value, ast.IfExp) else (value,)


def _texts(assigned: Iterable[tuple[str, ast.expr]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, value in assigned:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[name].add(value.value)
    return found


def console_scripts() -> list[str]:
    return sorted(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"])


def helm_renders() -> dict[str, list[str]]:
    """Return the lines that both charts give for each of their values files; rules and dashboards are in `static`."""
    return {
        f"{chart.path.name}/{values.name}": chart.render(read_values(values)).all_text().splitlines()
        for chart in map(LoadedChart, (GATEWAY, EXAMPLE))
        for values in chart.ci_values()
    }


def transcripts() -> dict[str, str]:
    paths = (ROOT / "tests").rglob("transcripts/recorded/*")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def sample_configuration() -> list[str]:
    """Return the settings of proxy.conf; a default stands there as a comment."""
    return re.findall(r"^#?[\w.]+=.*$", (ROOT / "proxy.conf").read_text(encoding="utf-8"), re.MULTILINE)


def monitoring() -> dict[str, Any]:
    """Return expressions, labels and thresholds of alerts, and the queries of dashboards, without their texts."""
    rules: Iterator[Path] = (ROOT / "helm").rglob("rules/*.yaml")
    boards = (ROOT / "helm").rglob("dashboards/*.json")
    alerts = {path.name: yaml.safe_load(path.read_text(encoding="utf-8"))["groups"] for path in rules}
    shown = {path.name: list(queries(json.loads(path.read_text(encoding="utf-8")))) for path in boards}
    return {**without(alerts, frozenset({"annotations"})), **shown}


def queries(value: Any) -> Iterator[str]:
    """Yield every text of a dashboard that names a metric or begins an expression, in order."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(each, str) and key in _QUERIES:
            yield f"{key}: {each}"
        else:
            yield from queries(each)
