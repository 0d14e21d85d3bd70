"""The content of tables, as one line each: rows, and a sum over all of them that has no order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, MapType, StructField

from pipeline.core.options import CommonSettings
from pipeline.core.tables import TABLES
from pipeline.core.tables.history import ADVICE_HISTORY, CALIBRATION_HISTORY
from pipeline.core.tables.usage import USAGE, WAITS
from pipeline.store.sinks import open_store
from pipeline.transforms.usage import add_usage, add_waits

__all__ = ["sums_of"]

# When something was run, which is never the same twice; and in which part of a table a row is.
PASSING: Final = ("made_at", "ingested_at", "part")
ADDED: Final = {USAGE.name: add_usage, WAITS.name: add_waits}
# A run that was killed after its row has left a row.
OF_RUNS: Final = (CALIBRATION_HISTORY.name, ADVICE_HISTORY.name)


def sums_of(spark: SparkSession, tables: str, names: Iterable[str]) -> Mapping[str, tuple[int, str]]:
    """Return the rows of those of these tables that there are, and the sum of their hashes."""
    store = open_store(spark, CommonSettings(tables, "delta", None, {}))
    found = {name: store.read(table) for name, table in TABLES.items() if name in names}
    return {name: _sum(name, frame) for name, frame in found.items() if frame is not None}


def _sum(name: str, frame: DataFrame) -> tuple[int, str]:
    rows = ADDED[name](frame) if name in ADDED else frame
    cells = rows.select(*(_cell(field).alias(field.name) for field in rows.schema if field.name not in PASSING))
    once = cells.distinct() if name in OF_RUNS else cells
    hashed = once.select(F.xxhash64(*once.columns).cast("decimal(38,0)").alias("hash"))
    row = hashed.agg(F.count("hash").alias("rows"), F.sum("hash").cast("string").alias("sum")).collect()[0]
    return int(row["rows"]), str(row["sum"])


def _cell(field: StructField) -> Column:
    """Return what is compared of a column; sums of doubles have no order, so that their last digits differ."""
    match field.dataType:
        case DoubleType():
            return F.format_string("%.6e", F.col(field.name))
        case MapType():
            return F.to_json(F.sort_array(F.map_entries(F.col(field.name))))
        case _:
            return F.col(field.name)
