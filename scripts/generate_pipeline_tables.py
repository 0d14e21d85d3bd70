"""Write docs/reference/pipeline-tables.md from the declarations of the tables."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from pipeline.core.tables import TABLES, Column, Table
from pipeline.core.tables.events import REASONS
from scripts.generated import ROOT

PAGE = ROOT / "docs/reference/pipeline-tables.md"
INTRODUCTION = """\
<!-- Written by scripts/generate_pipeline_tables.py from pipeline/core/tables; do not edit here. -->

# Tables of the pipeline

Each table is a directory of that name under `--out`. The columns it is laid out by are directories, as
`date=2026-03-01`.
Times are UTC. What a job writes is checked against these declarations.
"""


def row(column: Column) -> str:
    kind = column.type + ("?" if column.nullable else "")
    return f"| `{column.name}` | {kind} | {column.unit} | {column.meaning} |"


def section(table: Table) -> list[str]:
    laid_out = ", ".join(f"`{name}`" for name in table.partition_by) or "nothing"
    key = ", ".join(f"`{name}`" for name in table.key)
    named = f"A row is named by {key}; laid out by {laid_out}."
    lines = [f"## {table.name}", "", *textwrap.wrap(table.meaning, 120), "", *textwrap.wrap(named, 120), ""]
    lines += ["| column | type | unit | meaning |", "|---|---|---|---|", *map(row, table.columns), ""]
    if table.name == "quarantine":
        lines += ["| reason | what it says |", "|---|---|"]
        lines += [*(f"| `{name}` | {meaning} |" for name, meaning in REASONS.items()), ""]
    return lines


def page() -> str:
    lines = [INTRODUCTION, *(line for table in TABLES.values() for line in section(table))]
    return "\n".join(lines).rstrip() + "\n"


def files() -> Mapping[Path, str]:
    return {PAGE: page()}
