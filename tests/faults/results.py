"""Read the file of results of the fault matrix; a cell that was never run has no record."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parents[2] / "benchmarks/results/faults.json"
_PLACE: Final = ("stage", "kind", "side", "moment", "engine")


def load() -> list[dict[str, Any]]:
    """Return the records, none if there is no file."""
    if not RESULTS.exists():
        return []
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    return found


def place_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cell of a record."""
    return tuple(record[name] for name in _PLACE)
