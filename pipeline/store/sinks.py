"""The tables under `--out`: opened, read, replaced; in Delta or as plain Parquet."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.paths import DELTA_LOG, mounted
from pipeline.core.schema import table_schema
from pipeline.core.tables import TABLES, Table
from pipeline.core.tables.whatif import REPLAY_INPUT
from pipeline.store import hadoop
from pipeline.store.parquet import WHOLE, ParquetStore
from pipeline.store.protocol import Store

Row = Mapping[str, Any]
# Places where this process found no table of another format.
_OF_ITS_FORMAT: Final[set[tuple[str, str]]] = set()


def open_store(spark: SparkSession, settings: CommonSettings) -> Store:
    """Open the tables under `--out`; raises PipelineError for a place that cannot hold them."""
    path = mounted(settings.out)
    if path is not None and path.exists() and not path.is_dir():
        raise PipelineError(f"--out {settings.out}: got a file, expected a directory")
    # For Spark `/a` may be on another file system, and a relative path is below another directory.
    out = settings.out if path is None else f"file://{path}"
    # To look takes a request for each table of an object store, and a job opens its store many times.
    if (out, settings.format) not in _OF_ITS_FORMAT:
        _require_format(spark, settings, out)
        _OF_ITS_FORMAT.add((out, settings.format))
    if settings.format == "parquet":
        return ParquetStore(spark, out)
    # Imported here, since only the extra `delta` brings its package.
    from pipeline.store.delta import DeltaStore

    return DeltaStore(spark, out)


def _require_format(spark: SparkSession, settings: CommonSettings, out: str) -> None:
    """Refuse tables of the other format: read as Parquet, those of Delta have rows twice that were replaced."""
    logs = set(hadoop.holders(spark, out, DELTA_LOG)) & TABLES.keys()
    if settings.format == "parquet":
        other, found = "delta", logs
    else:
        # Only a job that has ended leaves the sign of Parquet; what follows from the trace is always Parquet.
        other, found = "parquet", (set(hadoop.holders(spark, out, WHOLE)) & TABLES.keys()) - logs - {REPLAY_INPUT.name}
    if found:
        raise PipelineError(
            f"--out {settings.out}: got --format {settings.format} and tables of the other format"
            f" ({', '.join(sorted(found))}), expected --format {other}"
        )


def read_table(spark: SparkSession, settings: CommonSettings, table: Table) -> DataFrame:
    """Return the rows of a table; raises PipelineError if no job has written it yet."""
    rows = open_store(spark, settings).read(table)
    if rows is None:
        raise PipelineError(f"--out {settings.out}: found no table `{table.name}`: run the job that writes it first")
    return rows


def write_table(spark: SparkSession, settings: CommonSettings, table: Table, frame: DataFrame) -> None:
    """Replace the rows of a table by these: the table has all of them or, after a crash, those of before."""
    store = open_store(spark, settings)
    with store.stage(table, frame) as rows, store.exclusive() as opened:
        opened.replace(table, rows)


def write_rows(spark: SparkSession, settings: CommonSettings, table: Table, rows: Iterable[Row]) -> None:
    """Replace the rows of a table of results by these."""
    write_table(spark, settings, table, frame_of(spark, table, rows))


def frame_of(spark: SparkSession, table: Table, rows: Iterable[Row]) -> DataFrame:
    """Return rows of results, which are few, as a frame."""
    values = [tuple(row[column.name] for column in table.columns) for row in rows]
    return spark.createDataFrame(values, table_schema(table)).coalesce(1)
