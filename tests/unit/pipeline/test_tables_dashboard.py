"""The Grafana dashboard over the tables: its SQL is run by DuckDB over tables as they are declared."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.core.tables import TABLES
from pipeline.core.tables.table import ColumnType

HERE = Path(__file__).resolve().parents[3] / "deploy" / "pipeline"
DASHBOARD: dict[str, Any] = json.loads((HERE / "grafana-tables.json").read_text("utf-8"))
SCHEMA = "pulsar_proxy"
TYPES: dict[ColumnType, str] = {
    "string": "VARCHAR", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE",
    "bool": "BOOLEAN", "timestamp": "TIMESTAMPTZ", "date": "DATE", "map<int32,int64>": "MAP(INTEGER, BIGINT)",
}  # fmt: skip
HOUR = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR_MS = int(HOUR.timestamp() * 1000)
QUERIES = {panel["title"]: panel["targets"][0]["rawSql"] for panel in DASHBOARD["panels"]}


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Give the tables, empty."""
    with duckdb.connect() as made:
        made.execute(f"CREATE SCHEMA {SCHEMA}")
        for name, table in TABLES.items():
            columns = ", ".join(f'"{column.name}" {TYPES[column.type]}' for column in table.columns)
            made.execute(f"CREATE TABLE {SCHEMA}.{name} ({columns})")
        yield made


def asked(database: duckdb.DuckDBPyConnection, title: str, **like: str) -> list[dict[str, Any]]:
    """Run the query of a panel as Grafana would fill it in, over the hour around `HOUR`."""
    filled = {"__from": str(HOUR_MS - 60_000), "__to": str(HOUR_MS + 60_000)}
    filled |= {f"{name}:sqlstring": f"'{like.get(name, '%')}'" for name in ("cluster", "proxy", "namespace")}
    sql = QUERIES[title]
    for name, value in filled.items():
        sql = sql.replace(f"${{{name}}}", value)
    assert "$" not in sql
    found = database.execute(sql)
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def add(database: duckdb.DuckDBPyConnection, table: str, **fields: object) -> None:
    """Add a row; numbers that are not said are 0."""
    columns = TABLES[table].columns
    zero = {"int16": 0, "int32": 0, "int64": 0, "double": 0.0}
    row = {column.name: fields.get(column.name, zero.get(column.type)) for column in columns}
    assert fields.keys() <= row.keys()
    marks = ", ".join("?" for _ in row)
    database.execute(f"INSERT INTO {SCHEMA}.{table} VALUES ({marks})", list(row.values()))


@pytest.mark.parametrize("title", QUERIES)
def test_every_query_names_columns_that_are_declared(database: duckdb.DuckDBPyConnection, title: str) -> None:
    assert asked(database, title) == []


def test_panels_are_of_the_cluster_proxy_and_namespace_that_are_looked_at(
    database: duckdb.DuckDBPyConnection,
) -> None:
    usage = {"window_start": HOUR, "window_seconds": 60, "heap_byte_seconds": 120.0, "answered": 2, "refused": 1}
    for cluster, proxy, namespace in (("east", "p1", "t/a"), ("east", "p2", "t/a"), ("west", "p1", "t/a")):
        row = {"cluster": cluster, "proxy_id": proxy, "namespace": namespace, "broker": "b1", "questions": 3}
        add(database, "usage", requests=3, **row, **usage)
    (row,) = asked(database, "Topic lists by outcome", cluster="east", namespace="t/%")
    assert (row["answered"], row["refused"]) == (4, 2)
    (row,) = asked(database, "Memory booked, mean of each window", cluster="east", proxy="p2")
    assert (row["heap"], row["direct"]) == (2.0, 0.0)
    assert asked(database, "Topic lists by outcome", namespace="u/%") == []
    both = asked(database, "Topic lists by outcome")
    assert sorted((row["cluster"], row["answered"]) for row in both) == [("east", 4), ("west", 2)]
    costs = asked(database, "Namespaces that cost most")
    assert [(row["cluster"], row["requests"]) for row in costs] == [("east", 6), ("west", 3)], "clusters stay apart"
    brokers = asked(database, "Brokers that were asked", proxy="p1")
    assert [(row["cluster"], row["questions"]) for row in brokers] == [("east", 3), ("west", 3)]


def test_quantiles_of_waits_are_those_of_their_buckets(database: duckdb.DuckDBPyConnection) -> None:
    for bucket, count in ((-1, 50), (159, 40), (160, 10)):
        add(database, "waits", window_start=HOUR, namespace="t/a", wait="memory", bucket=bucket, count=count)
    add(database, "waits", window_start=HOUR, namespace="t/a", wait="total", bucket=300, count=1000)
    (row,) = asked(database, "Waits for memory")
    assert row["p50"] == 0
    # Bucket 160 begins at 2 ** 20 us.
    assert row["p95"] == row["p99"] == pytest.approx(2**20 / 1e6, rel=0.05)
