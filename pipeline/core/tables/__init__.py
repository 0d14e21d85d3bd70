"""Every table that a job writes, declared once: its columns with types, units and meanings, a file for each theme.

Rule: `TABLES` is the whole list. Spark schemas and docs/reference/pipeline-tables.md are derived from it, and what a
job writes is checked against it. No pyspark here. `table` says what a table is, the other files are themes. A column's
value is made in `pipeline/transforms/` or in the job.
"""

from importlib import import_module
from typing import Final

from pipeline.core.tables.table import Column, Table

__all__ = ["TABLES", "Column", "Table"]

_THEMES: Final = ("events", "days", "usage", "slowed", "storms", "whatif", "history")


def _all() -> dict[str, Table]:
    themes = [import_module(f"{__name__}.{theme}") for theme in _THEMES]
    return {table.name: table for theme in themes for table in vars(theme).values() if isinstance(table, Table)}


TABLES: Final[dict[str, Table]] = _all()
