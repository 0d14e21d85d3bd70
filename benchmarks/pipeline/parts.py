"""The table of what can be measured: each part is a module with `run(quick)`, which gives its result."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__all__ = ["PARTS", "run_part"]

Json = dict[str, Any]

# In the order of the page. A part's result has `scenario`, `title`, `rows` (name -> figures), `ratios` and `checks`.
PARTS: Final[dict[str, str]] = {name: f"benchmarks.pipeline.{name}.part" for name in ("usage", "ingest", "holds")}


def run_part(name: str, quick: bool) -> Json:
    """Measure a part; it is imported only now, because some parts need what others do not."""
    result: Json = import_module(PARTS[name]).run(quick)
    return result
