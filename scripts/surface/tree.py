"""What files of the checkout say: log events, generated tables, event schema, charts, monitoring, transcripts.

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

from scripts.helm.render import EXAMPLE, GATEWAY, LoadedChart, read_values
from scripts.surface.text import without

ROOT: Final = Path(__file__).resolve().parents[2]
_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})
_HUMAN: Final = frozenset({"title", "description", "summary"})
# A bar that is escaped is part of its cell.
_BAR: Final = re.compile(r"(?<!\\)\|")


def page(name: str) -> str:
    """Return the text of the only file of docs/ with this name."""
    (path,) = (ROOT / "docs").rglob(name)
    return path.read_text(encoding="utf-8")


def table(name: str, *, without: str) -> dict[str, list[str]]:
    """Return the rows of all tables of a page by their first cell, without the column of human text."""
    rows, left_out = {}, -1
    for line in page(name).splitlines():
        if not line.startswith("|") or line.startswith("|---"):
            continue
        cells = [cell.strip() for cell in _BAR.split(line)[1:-1]]
        if without in cells:
            left_out = cells.index(without)
            continue
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
    constants = _texts_by_name(node for tree in trees for node in tree.body)
    found: set[str] = set()
    for tree in trees:
        found |= events_of(tree, constants)
    return found


def events_of(tree: ast.Module, constants: Mapping[str, set[str]]) -> set[str]:
    """Return the events of one module; `constants` are those of all modules, which it may import."""
    named, writers = _texts_by_name(ast.walk(tree)), _writers(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _writes_a_line(node.func, writers):
            first = node.args[0]
            found |= _texts(first)
            if isinstance(first, ast.Name):
                found |= named.get(first.id) or (constants.get(first.id, set()) if first.id.isupper() else set())
    return found


def _writes_a_line(called: ast.expr, writers: set[str]) -> bool:
    return called.attr in _LEVELS if isinstance(called, ast.Attribute) else getattr(called, "id", "") in writers


def _writers(tree: ast.Module) -> set[str]:
    """Return names for a method of a logger: `write = log.debug if routine else log.info`."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        for each in _choices(node.value)
        if isinstance(each, ast.Attribute) and each.attr in _LEVELS
    }


def _texts_by_name(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return the texts that are assigned to each name, also pair by pair."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    found[name.id] |= _texts(value)
    return found


def _texts(value: ast.expr) -> set[str]:
    return {each.value for each in _choices(value) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _choices(value: ast.expr) -> tuple[ast.expr, ...]:
    return (*_choices(value.body), *_choices(value.orelse)) if isinstance(value, ast.IfExp) else (value,)


def console_scripts() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return sorted(tomllib.load(file)["project"]["scripts"])


def helm_renders() -> dict[str, list[str]]:
    """Return the lines that both charts give for each of their values files; rules and dashboards are in `static`."""
    return {
        f"{path.name}/{values.name}": chart.render(read_values(values)).all_text().splitlines()
        for path in (GATEWAY, EXAMPLE)
        for chart in (LoadedChart(path),)
        for values in chart.ci_values()
    }


def transcripts() -> dict[str, str]:
    paths = sorted((ROOT / "tests").rglob("transcripts/recorded/*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def sample_configuration() -> list[str]:
    """Return the settings of proxy.conf; a default stands there as a comment."""
    text = (ROOT / "proxy.conf").read_text(encoding="utf-8")
    return re.findall(r"^#?[\w.]+=.*$", text, re.MULTILINE)


def monitoring() -> dict[str, list[Any]]:
    """Return expressions, labels and thresholds of alerts, and the queries of dashboards, without their texts."""
    found: dict[str, list[Any]] = {}
    for path in sorted((ROOT / "helm").rglob("rules/*.yaml")):
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        found[path.name] = without(groups, frozenset({"annotations"}))
    for path in sorted((ROOT / "helm").rglob("dashboards/*.json")):
        found[path.name] = list(queries(json.loads(path.read_text(encoding="utf-8"))))
    return found


def queries(value: Any) -> Iterator[str]:
    """Yield every text of a dashboard that names a metric or begins an expression, in order."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, str) and key in ("expr", "definition", "query", "legendFormat", "unit", "uid"):
                yield f"{key}: {each}"
            else:
                yield from queries(each)
    elif isinstance(value, list):
        for each in value:
            yield from queries(each)
