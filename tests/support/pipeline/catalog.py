"""Tables and views by name in a database of Spark's catalog that a test has for itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.tables import TABLES, Table
from pipeline.store.tables import place_of, write_rows

HERE: Final = Path(__file__).resolve().parents[3] / "deploy" / "pipeline"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO: Final = {
    "int16": 0, "int32": 0, "int64": 0, "double": 0.0, "bool": False, "timestamp": _EPOCH, "date": _EPOCH.date(),
}  # fmt: skip


@contextmanager
def database(spark: SparkSession, name: str) -> Iterator[None]:
    """Have names stand for what is made in this block."""
    spark.sql(f"CREATE DATABASE {name}")
    spark.sql(f"USE {name}")
    try:
        yield
    finally:
        spark.sql("USE default")
        spark.sql(f"DROP DATABASE {name} CASCADE")


def put(spark: SparkSession, common: CommonSettings, table: Table, *rows: dict[str, Any]) -> None:
    """Write a table, in which numbers that are not said are 0, times long ago, and other values null."""
    blank = {column.name: None if column.nullable else _ZERO.get(column.type, "") for column in table.columns}
    assert all(row.keys() <= blank.keys() for row in rows)
    write_rows(spark, common, table, [blank | row for row in rows])


def fill(spark: SparkSession, common: CommonSettings, name: str, *rows: dict[str, Any]) -> None:
    """Do the same, and name the table."""
    put(spark, common, TABLES[name], *rows)
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{place_of(common, TABLES[name])}'")
