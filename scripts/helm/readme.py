"""The table of values in a chart's README, out of the comments of its values.yaml.

Rule: a comment that begins with `# --` says what the value below it is; a value without one, and without a described
parent, ends the generator.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.generated import placed

BEGIN: Final = "<!-- values: written by scripts/generate_helm.py from values.yaml; do not edit here -->"
END: Final = "<!-- values: end -->"
_KEY: Final = re.compile(r"( *)([A-Za-z0-9_.-]+):(.*)")


def with_values(readme: Path, values: Path) -> str:
    """Return the text of a README with its table written anew."""
    return placed(readme, {(BEGIN, END): f"\n\n{_table(values.read_text(encoding='utf-8'))}\n\n"})


def _table(text: str) -> str:
    defaults = yaml.safe_load(text)
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, comment in _described(text):
        default = json.dumps(_at(defaults, path)).replace("|", "\\|")
        shown = f"`{default}`" if len(default) <= 60 else "see values.yaml"
        rows.append(f"| `{'.'.join(path)}` | {shown} | {comment.replace('|', chr(92) + '|')} |")
    _check_all_described(defaults, {path for path, _ in _described(text)})
    return "\n".join(rows)


def _described(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each value that has a comment, and the comment."""
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            comment = [stripped.removeprefix("# --").strip()]
        elif stripped.startswith("#"):
            if comment:
                comment.append(stripped.lstrip("# "))
        elif found := _KEY.fullmatch(line):
            indent = len(found[1])
            stack = [*((depth, name) for depth, name in stack if depth < indent), (indent, found[2])]
            if comment:
                yield tuple(name for _, name in stack), " ".join(comment)
            comment = []
        else:
            comment = []


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values[name]
    return values


def _check_all_described(values: Any, described: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> None:
    for name, value in values.items():
        here = (*path, name)
        if here in described:
            continue
        if not isinstance(value, dict) or not value:
            raise ValueError(f"values.yaml: {'.'.join(here)}: got no comment, expected one that begins with # --")
        _check_all_described(value, described, here)
