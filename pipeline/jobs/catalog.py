"""SQL that has other programs know the tables by name: Spark's catalog, Trino, DuckDB. Pure.

Rule: `usage` and `waits` may be in parts, so that each has a view with the ending `_added` that adds them up. A query
that counts in the tables themselves adds up, too, and never counts rows.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import add_common, common_settings
from pipeline.core.paths import DELTA_LOG, mounted
from pipeline.core.tables import TABLES, Table
from pipeline.core.tables.usage import USAGE, WAITS
from pipeline.core.tables.whatif import REPLAY_INPUT

DIALECTS: Final = ("spark", "trino", "duckdb")
# `replay_input` is between two jobs.
OFFERED: Final = tuple(name for name in TABLES if name != REPLAY_INPUT.name)
_NUMBERS: Final = ("int64", "double")


def statements(dialect: str, schema: str, out: str, format_: str, names: Iterable[str]) -> list[str]:
    """Return the statements for these tables, and for the views of those that come in parts; raises PipelineError."""
    if dialect == "trino" and format_ != "delta":
        raise PipelineError("--dialect trino: got --format parquet, expected delta: Trino needs a log to know a table")
    chosen = [TABLES[name] for name in names]
    form = _TABLE_OF[(dialect, format_)]
    made = []
    for table in chosen:
        partitions = ", hive_partitioning = true" if table.partition_by else ""
        place = f"{out}/{table.name}"
        made.append(form.format(schema=schema, name=table.name, place=place, partitions=partitions))
    made += [_added(table, schema) for table in chosen if table in (USAGE, WAITS)]
    return [f"CREATE SCHEMA IF NOT EXISTS {schema}", *made]


def _added(table: Table, schema: str) -> str:
    others = [column for column in table.columns if column.name != "part"]
    keys = ", ".join(column.name for column in others if column.type not in _NUMBERS)
    sums = [column.name for column in others if column.type in _NUMBERS]
    values = [f"{'max' if name.startswith('max_') else 'sum'}({name}) AS {name}" for name in sums]
    return (
        f"CREATE OR REPLACE VIEW {schema}.{table.name}_added AS SELECT {keys}, {', '.join(values)}"
        f" FROM {schema}.{table.name} GROUP BY {keys}"
    )


_TABLE_OF: Final[Mapping[tuple[str, str], str]] = {
    ("spark", "delta"): "CREATE TABLE IF NOT EXISTS {schema}.{name} USING delta LOCATION '{place}'",
    ("spark", "parquet"): "CREATE OR REPLACE VIEW {schema}.{name} AS SELECT * FROM parquet.`{place}`",
    ("trino", "delta"): "CALL system.register_table(schema_name => '{schema}', table_name => '{name}',"
    " table_location => '{place}')",
    ("duckdb", "delta"): "CREATE OR REPLACE VIEW {schema}.{name} AS FROM delta_scan('{place}')",
    ("duckdb", "parquet"): "CREATE OR REPLACE VIEW {schema}.{name} AS"
    " FROM read_parquet('{place}/**/*.parquet'{partitions})",
}


def _require_tables(out: str, directory: Path, format_: str) -> None:
    """Refuse a directory without tables, and tables of the other format."""
    there = [name for name in OFFERED if (directory / name).is_dir()]
    if not there:
        raise PipelineError(f"--out {out}: found no table there, expected at least `events`")
    logs = [name for name in there if (directory / name / DELTA_LOG).is_dir()]
    if format_ == "parquet" and logs:
        raise PipelineError(f"--out {out}: got tables of Delta ({', '.join(logs)}), expected --format delta")
    if format_ == "delta" and not logs:
        raise PipelineError(f"--out {out}: got tables of Parquet, expected --format parquet")


def _has_rows(table: Path) -> bool:
    """Return whether a table has a file: without one no program knows the columns of a table of Parquet."""
    return next(table.rglob("*.parquet"), None) is not None or (table / DELTA_LOG).is_dir()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    parser.add_argument("--dialect", choices=DIALECTS, default="duckdb", help="whose SQL (default: %(default)s)")
    parser.add_argument("--schema", default="pulsar_proxy", metavar="NAME", help="of the tables (default: %(default)s)")
    parser.add_argument("--tables", metavar="T,T,...", help="which (default: those that are there if --out is mounted)")


def run(options: argparse.Namespace) -> int:
    """Print the statements; raises PipelineError."""
    common = common_settings(options)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", options.schema):
        raise PipelineError(f"--schema: got {options.schema!r}, expected letters, digits and underscores")
    directory = mounted(common.out)
    place = common.out if directory is None else str(directory)
    if "'" in place or "`" in place:
        raise PipelineError(f"--out: got {place}, expected no quotation mark in it")
    names = OFFERED if options.tables is None else tuple(options.tables.split(","))
    if unknown := [name for name in names if name not in OFFERED]:
        raise PipelineError(f"--tables: got {', '.join(unknown)}, expected some of {', '.join(OFFERED)}")
    if options.tables is None and directory is not None:
        _require_tables(options.out, directory, common.format)
        names = tuple(name for name in names if _has_rows(directory / name))
    try:
        for statement in statements(options.dialect, options.schema, place, common.format, names):
            print(f"{statement};")
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough; the interpreter must not try to write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK
