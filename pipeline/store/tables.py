"""The tables under `--out`, in Delta Lake: read, added to, replaced whole or by days, kept small.

Rule: a change of a table is one commit: whoever reads has all of it or nothing, and a job that is killed leaves the
table as it was. Writers need no lock on a file system that puts a name in place once: of two that add the same event
one is refused by Delta and looks again. On S3 they need a log store that does so (`at_work` asks for it).
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, Final, TypeVar

import pyarrow as pa
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.paths import mounted
from pipeline.core.schema import arrow_schema, require_table, table_schema
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENTS

Row = Mapping[str, Any]
T = TypeVar("T")

# Commits are refused for what came since the table was looked at: a job of two that meet looks again.
_MET: Final = (
    ConcurrentAppendException, ConcurrentDeleteDeleteException, ConcurrentDeleteReadException,
    ConcurrentTransactionException, ConcurrentWriteException, MetadataChangedException, ProtocolChangedException,
)  # fmt: skip
# Delta's conditions: nothing was ever committed at a place, in two words; somebody has made the table first.
_NO_TABLE: Final = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND")
_MADE_MEANWHILE: Final = "DELTA_PATH_EXISTS"
_TRIES: Final = 8
_LONGEST_PAUSE_SECONDS: Final = 4.0


def read(spark: SparkSession, common: CommonSettings, table: Table) -> DataFrame | None:
    """Return the rows of a table, None if no job has written it yet; raises PipelineError for an older layout."""
    found = _delta(spark, common, table)
    if found is None:
        return None
    rows, names = found.toDF(), [column.name for column in table.columns]
    if different := sorted({*names} ^ {*rows.columns}):
        raise PipelineError(
            f"--out {common.out}: the table `{table.name}` is of another layout ({', '.join(different)}): another"
            " version of the pipeline wrote it; choose another --out and --checkpoint and ingest again"
        )
    return rows.select(names)


def read_table(spark: SparkSession, common: CommonSettings, table: Table) -> DataFrame:
    """Return the rows of a table; raises PipelineError if no job has written it yet."""
    rows = read(spark, common, table)
    if rows is None:
        raise PipelineError(f"--out {common.out}: found no table `{table.name}`: run the job that writes it first")
    return rows


def add_new(spark: SparkSession, common: CommonSettings, table: Table, rows: DataFrame, where: str = "true") -> int:
    """Add the rows whose key is not in the table, and return their number; `rows` have each key once.

    `where` is a condition on the table, as `t`, outside of which no key of the rows can be.
    """
    require_table(rows, table)
    if read(spark, common, table) is None:
        _make(spark, common, table)
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in table.key)

    def add() -> int:
        found = DeltaTable.forPath(spark, place_of(common, table)).alias("t")
        done = found.merge(rows.alias("s"), f"({where}) AND {same}").whenNotMatchedInsertAll().execute()
        return int(done.collect()[0]["num_inserted_rows"])

    return _committed(common, add)


def append(common: CommonSettings, table: Table, rows: DataFrame) -> None:
    """Add rows to a table."""
    _write(common, table, rows, "append", {})


def write_table(common: CommonSettings, table: Table, rows: DataFrame) -> None:
    """Replace all rows of a table by these."""
    _write(common, table, rows, "overwrite", {"overwriteSchema": "true"})


def replace_days(common: CommonSettings, table: Table, rows: DataFrame, days: Iterable[date]) -> None:
    """Replace the rows of these days by these, which are of no other."""
    replace_where(common, table, rows, on_days(days))


def on_days(days: Iterable[date]) -> str:
    """Return the condition on a table's rows, SQL, that they are of one of these days."""
    # Of none, no row is: an empty list is no SQL.
    return "date IN ({})".format(", ".join(f"DATE'{day}'" for day in days) or "NULL")


def replace_where(common: CommonSettings, table: Table, rows: DataFrame, where: str) -> None:
    """Replace the rows that meet a condition, SQL, by these, which all do."""
    _write(common, table, rows, "overwrite", {"replaceWhere": where})


def write_rows(spark: SparkSession, common: CommonSettings, table: Table, rows: Iterable[Row]) -> None:
    """Replace the rows of a table of results, which are few, by these."""
    write_table(common, table, frame_of(spark, table, rows))


def frame_of(spark: SparkSession, table: Table, rows: Iterable[Row]) -> DataFrame:
    """Return rows of results, which are few, as a frame."""
    # Of a list Spark makes rows in Python workers, which start for a second of processor time.
    values = [{column.name: row[column.name] for column in table.columns} for row in rows]
    made = pa.Table.from_pylist(values, arrow_schema(table))
    return spark.createDataFrame(made, table_schema(table)).coalesce(1)


def drop_before(spark: SparkSession, common: CommonSettings, table: Table, day: date) -> int:
    """Delete the rows of earlier days, and return the number of their files, which go with `clean`."""
    if (found := _delta(spark, common, table)) is None:
        return 0
    before = _files(found)
    _committed(common, lambda: found.delete(F.col("date") < F.lit(day)))
    return before - _files(found)


def merge_files(spark: SparkSession, common: CommonSettings, table: Table, target_bytes: int) -> tuple[int, int]:
    """Merge small files of a table into such of about this size, and return how many there were, and are."""
    if (found := _delta(spark, common, table)) is None:
        return 0, 0
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", target_bytes)
    before = _files(found)
    _committed(common, lambda: found.optimize().executeCompaction())
    return before, _files(found)


def clean(spark: SparkSession, common: CommonSettings, table: Table) -> None:
    """Delete the files that no reader has needed for Delta's time, a week."""
    if (found := _delta(spark, common, table)) is not None:
        found.vacuum()


def place_of(common: CommonSettings, table: Table) -> str:
    """Return where a table is."""
    path = mounted(common.out)
    # For Spark `/a` may be on another file system, and a relative path is below another directory.
    return f"{common.out if path is None else f'file://{path}'}/{table.name}"


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is something at a path."""
    if (here := mounted(path)) is not None:
        return here.exists()
    try:
        spark.read.format("binaryFile").load(path)
    except AnalysisException:
        return False
    return True


def _delta(spark: SparkSession, common: CommonSettings, table: Table) -> DeltaTable | None:
    place = place_of(common, table)
    # Files of another table are what a job left that was killed in its first write: they are in no log.
    if (found := _at(spark, place)) is not None or table is not EVENTS or not _has_files(spark, place):
        return found
    # Another may have made the table, and written to it, between the two looks.
    if (found := _at(spark, place)) is None:
        raise PipelineError(
            f"--out {common.out}: `{table.name}` is no table of Delta: an older pipeline wrote it; choose another --out"
            " and --checkpoint and ingest again"
        )
    return found


def _at(spark: SparkSession, place: str) -> DeltaTable | None:
    """Return the table at a place as it is now; None if nothing was ever committed there."""
    try:
        return DeltaTable.forPath(spark, place)
    except AnalysisException as error:
        if error.getCondition() in _NO_TABLE:
            return None
        raise


def _has_files(spark: SparkSession, place: str) -> bool:
    # The log is hidden from a reader of files; a job that was killed may have made its directory, and nothing else.
    found = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    return exists(spark, place) and bool(found.load(place).inputFiles())


def _make(spark: SparkSession, common: CommonSettings, table: Table) -> None:
    """Make a table without rows, so that a job that is killed before its first commit leaves no file without a log."""
    # CREATE TABLE takes a directory for a table that another has made and not committed to, or never will.
    writer = frame_of(spark, table, []).write.format("delta").partitionBy(*table.partition_by).mode("ignore")
    _committed(common, lambda: writer.save(place_of(common, table)))


def _write(common: CommonSettings, table: Table, rows: DataFrame, mode: str, options: Mapping[str, str]) -> None:
    require_table(rows, table)
    writer = rows.write.format("delta").partitionBy(*table.partition_by)

    def save() -> None:
        place = place_of(common, table)
        if read(rows.sparkSession, common, table) is None:
            # A new table has nothing to replace, and to look for it takes as long as to write.
            try:
                writer.mode("error").save(place)
            except AnalysisException as error:
                if error.getCondition() != _MADE_MEANWHILE:
                    raise
            else:
                return
        writer.mode(mode).options(**options).save(place)

    _committed(common, save)


def _committed(common: CommonSettings, change: Callable[[], T]) -> T:
    """Make a change, once more if it met another; raises PipelineError if it always does."""
    for number in range(_TRIES):
        try:
            return change()
        except _MET:
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, 0.25 * 2**number)))
    raise PipelineError(
        f"--out {common.out}: {_TRIES} times another job changed the same table first: run again", ExitCode.FAILED
    )


def _files(table: DeltaTable) -> int:
    return int(table.detail().collect()[0].numFiles)
