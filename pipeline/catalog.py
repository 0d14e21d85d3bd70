"""SQL that has other programs know the tables by name: Spark's catalog, Trino, DuckDB. Pure.

Rule: `usage` and `waits` may be in parts, so that each has a view with the ending `_added` that adds them up. Who
counts in the tables themselves adds up, too, and never counts rows.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pipeline.errors import PipelineError
from pipeline.tables import TABLES, Table
from pipeline.tables.usage import USAGE, WAITS
from pipeline.tables.whatif import REPLAY_INPUT

__all__ = ["DIALECTS", "OFFERED", "statements"]

DIALECTS: Final = ("spark", "trino", "duckdb")
# `replay_input` is between two jobs.
OFFERED: Final = tuple(name for name in TABLES if name != REPLAY_INPUT.name)
_NUMBERS: Final = ("int64", "double")


def statements(dialect: str, schema: str, out: str, format_: str, names: Iterable[str]) -> list[str]:
    """Give the statements for these tables, and for the views of those that come in parts; raises PipelineError."""
    if dialect == "trino" and format_ != "delta":
        raise PipelineError("--dialect trino: got --format parquet, expected delta: Trino needs a log to know a table")
    chosen = [TABLES[name] for name in names]
    named: Callable[[Table], str] = _TABLE_OF[(dialect, format_)]
    made = [named(table).format(schema=schema, name=table.name, place=f"{out}/{table.name}") for table in chosen]
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


def _always(text: str) -> Callable[[Table], str]:
    return lambda _: text


def _duckdb_files(table: Table) -> str:
    options = ", hive_partitioning = true" if table.partition_by else ""
    return f"CREATE OR REPLACE VIEW {{schema}}.{{name}} AS FROM read_parquet('{{place}}/**/*.parquet'{options})"


_TABLE_OF: Final[Mapping[tuple[str, str], Callable[[Table], str]]] = {
    ("spark", "delta"): _always("CREATE TABLE IF NOT EXISTS {schema}.{name} USING delta LOCATION '{place}'"),
    ("spark", "parquet"): _always("CREATE OR REPLACE VIEW {schema}.{name} AS SELECT * FROM parquet.`{place}`"),
    ("trino", "delta"): _always(
        "CALL system.register_table(schema_name => '{schema}', table_name => '{name}', table_location => '{place}')"
    ),
    ("duckdb", "delta"): _always("CREATE OR REPLACE VIEW {schema}.{name} AS FROM delta_scan('{place}')"),
    ("duckdb", "parquet"): _duckdb_files,
}
