"""What `catalog` prints, DuckDB runs, and the parts of a stream add up in the views."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.core.errors import ExitCode
from pipeline.core.tables.table import ColumnType
from pipeline.core.tables.usage import USAGE, WAITS

TYPES: dict[ColumnType, object] = {"string": "a", "int32": 60, "int64": 2, "double": 1.5}


def write(out: Path, part: int) -> None:
    for table in (USAGE, WAITS):
        row = {column.name: TYPES.get(column.type) for column in table.columns} | {"part": part}
        directory = out / table.name
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row]), directory / f"{part}.parquet")


def test_views_add_up_what_a_stream_wrote_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    assert main(["catalog", "--out", str(tmp_path)]) == ExitCode.OK
    database = duckdb.connect()
    database.execute(capsys.readouterr().out)
    found = database.execute("SELECT requests, max_heap_bytes FROM pulsar_proxy.usage_added").fetchall()
    assert found == [(4, 2)]
    assert database.execute("SELECT count FROM pulsar_proxy.waits_added").fetchall() == [(4,)]
    assert database.execute("SELECT count(*) FROM pulsar_proxy.usage").fetchall() == [(2,)]


def test_spark_and_trino_register_tables_of_delta(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["catalog", "--out", "s3a://events/tables", "--format", "delta", "--tables", "events", "--schema", "p"]
    assert main([*words, "--dialect", "spark"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "CREATE SCHEMA IF NOT EXISTS p;",
        "CREATE TABLE IF NOT EXISTS p.events USING delta LOCATION 's3a://events/tables/events';",
    ]
    assert main([*words, "--dialect", "trino"]) == ExitCode.OK
    assert "register_table(schema_name => 'p', table_name => 'events'" in capsys.readouterr().out
