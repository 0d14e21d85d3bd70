"""The result files of all benchmarks: `benchmarks/results/NAME.json`; those of a short look go to `.cache/` only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from benchmarks.ladder.processes import CACHE, LADDER
from scripts.generated import json_records

Json = dict[str, Any]

RESULTS = LADDER.parent / "results"
QUICK_RESULTS = CACHE / "quick"


def write(name: str, result: Json, *, kept: bool) -> None:
    directory = RESULTS if kept else QUICK_RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json_records(result) + "\n", encoding="utf-8")


def load(names: Iterable[str]) -> list[Json]:
    """Return the results that are kept under these names, in their order."""
    paths = [RESULTS / f"{name}.json" for name in names]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
