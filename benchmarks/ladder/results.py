"""The result files of all benchmarks: `benchmarks/results/NAME.json`; those of a short look go to `.cache/` only.

Floods are many: theirs are in one file, by scenario.
"""

from __future__ import annotations

import json
from typing import Any, Final

from benchmarks.ladder.processes import CACHE, LADDER
from scripts.generated import json_records

Json = dict[str, Any]

RESULTS: Final = LADDER.parent / "results"
QUICK_RESULTS: Final = CACHE / "quick"
FLOODS: Final = "hostile"


def write(name: str, result: Json, *, kept: bool) -> None:
    directory = RESULTS if kept else QUICK_RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    file, content = name, result
    if name.startswith(f"{FLOODS}-"):
        path = directory / f"{FLOODS}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        file, content = FLOODS, known | {name: result}
    (directory / f"{file}.json").write_text(json_records(content) + "\n", encoding="utf-8")


def load(name: str) -> Json:
    """Return what is kept under this name; raises OSError if nothing is."""
    found: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found
