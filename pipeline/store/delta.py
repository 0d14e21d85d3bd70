"""Tables in Delta Lake: for object stores, and for who wants its schema evolution and its history.

Rule: rows are computed once and kept on the executors' disks until they are in their tables. Each table has a log of
its own: after a crash between two tables of a change, the batch comes again, and what is there already is left out by
its key. One writer at a time (`pipeline.store.lease`), compaction included: two would each miss what the other adds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Final

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.schema import require_table, table_schema
from pipeline.core.tables import TABLES, Table
from pipeline.store.lease import Clock
from pipeline.store.protocol import Batch, Staged
from pipeline.store.writer import only_writer

__all__ = ["DeltaStore"]

APPLICATION: Final = "txnAppId"
VERSION: Final = "txnVersion"
# The stream that adds to a table, as a property of it.
KEPT_FOR: Final = "pulsarProxyPipeline.stream"


class DeltaStore:
    """Tables under one URI; each has a log of its own, and who changes any of them holds the lease of all."""

    def __init__(self, spark: SparkSession, root: str, clock: Clock | None = None) -> None:
        self._spark = spark
        self._root = root
        self._clock = clock

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        """Compute rows that are meant for a table; the caller discards them."""
        require_table(frame, table)
        return _Kept(frame)

    @contextmanager
    def exclusive(self) -> Iterator["OpenDelta"]:
        """Be the only one who changes the tables; raises PipelineError with the name of who does not end.

        Delta itself does not keep two appends of the same event apart, and on S3 not even two commits.
        """
        with only_writer(self._spark, self._root, self._clock) as require:
            yield OpenDelta(self, require)

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""
        found = self.delta(table)
        if found is None:
            return None
        rows = found.toDF()
        # A column that came later is not in a table until rows with the column are added.
        later = [column for column in table_schema(table) if column.name not in rows.columns]
        filled = rows.withColumns({column.name: F.lit(None).cast(column.dataType) for column in later})
        return filled.select([column.name for column in table.columns])

    def stream_of(self, table: Table) -> str:
        """Name the stream for which a table is kept, empty without one."""
        found = self.delta(table)
        return "" if found is None else str(found.detail().collect()[0].properties.get(KEPT_FOR, ""))

    def add_up(self, table: Table, before: date, added: Callable[[DataFrame], DataFrame]) -> int:
        """Have `added` make one part of all that a stream wrote for each earlier day; gives the number of days.

        The part gets a number above 0, as the stream's own; its batches stay marked in the log, so that one that comes
        again is left out as before.
        """
        # Nothing may be added between the look and the commit.
        with self.exclusive() as opened:
            if (rows := self.read(table)) is None:
                return 0
            old = rows.where((F.col("date") < F.lit(before)) & (F.col("part") > 0))
            counts = old.groupBy("date").agg(F.count_distinct("part").alias("parts"), F.max("part").alias("last"))
            if not (days := counts.where("parts > 1").collect()):
                return 0
            dates = [each.date for each in days]
            last = F.lit(max(each["last"] for each in days)).cast("long")
            whole = added(rows.where(F.col("date").isin(dates))).withColumn("part", last)
            staged = self.stage(table, whole.select(rows.columns))
            try:
                opened.replace_days(table, staged, dates)
            finally:
                staged.discard()
            return len(days)

    def clean(self, table: Table, hours: int | None = None) -> None:
        """Delete the files of versions that are older than so many hours; the default is Delta's own, a week."""
        # Delta takes less than its week for a mistake: somebody may be writing. Here nobody else is.
        self._spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        if (found := self.delta(table)) is not None:
            with self.exclusive() as opened:
                opened.require()
                found.vacuum(hours)

    def merge(self, table: Table, target_bytes: int) -> tuple[int, int]:
        """Have Delta merge small files of any age: its streams pass by what is merged."""
        self._spark.conf.set("spark.databricks.delta.optimize.maxFileSize", target_bytes)
        with self.exclusive() as opened:
            if (found := self.delta(table)) is None:
                return 0, 0
            before = _files(found)
            opened.require()
            found.optimize().executeCompaction()
            return before, _files(found)

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the rows of earlier days; their files go with `clean`."""
        with self.exclusive() as opened:
            if (found := self.delta(table)) is None:
                return 0
            before = _files(found)
            opened.require()
            found.delete(F.col("date") < F.lit(day))
            return before - _files(found)

    def delta(self, table: Table) -> DeltaTable | None:
        """Give a table as Delta has it, None if it was never written."""
        path = self.path(table)
        return DeltaTable.forPath(self._spark, path) if DeltaTable.isDeltaTable(self._spark, path) else None

    def set_property(self, table: Table, key: str, value: str) -> None:
        """Note something beside a table, which stays when its rows are replaced."""
        path = self.path(table).replace("`", "``")
        self._spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{key}' = '{value}')")

    def path(self, table: Table) -> str:
        """Say where a table is."""
        return f"{self._root}/{table.name}"


class OpenDelta:
    """Tables that nobody else changes now; `require` raises PipelineError if another may, by now."""

    def __init__(self, store: DeltaStore, require: Callable[[], None]) -> None:
        self.require = require
        self._store = store

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""
        return self._store.read(table)

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to tables, by name; each table takes a batch once."""
        for name, staged in rows.items():
            self._write(name, staged.frame, "append", batch)

    def replace(self, table: Table, rows: Staged) -> None:
        """Have a table hold these rows only."""
        self._write(table.name, rows.frame, "overwrite", None)

    def replace_days(self, table: Table, rows: Staged, days: Sequence[date]) -> None:
        """Have these days of a table hold these rows only, in one commit."""
        self._write(table.name, rows.frame, "overwrite", None, days)

    def keep_for(self, table: Table, stream: str) -> None:
        """Have a table be known as one that a stream adds to, also before the first batch is in it."""
        if self._store.stream_of(table) != stream:
            self.require()
            self._store.set_property(table, KEPT_FOR, stream)

    def _write(self, name: str, frame: DataFrame, mode: str, batch: Batch | None, days: Sequence[date] = ()) -> None:
        table = TABLES[name]
        # New columns may be null, and are added to a table of before.
        writer = frame.write.format("delta").mode(mode).option("mergeSchema", True).partitionBy(*table.partition_by)
        if mode == "overwrite":
            # The session overwrites partitions only; here the whole table is meant.
            writer = writer.option("partitionOverwriteMode", "static")
        if days:
            named = ", ".join(f"DATE'{day.isoformat()}'" for day in days)
            writer = writer.option("replaceWhere", f"date IN ({named})")
        if batch is not None:
            writer = writer.option(APPLICATION, batch.stream).option(VERSION, batch.number)
        self.require()
        writer.save(self._store.path(table))


def _files(table: DeltaTable) -> int:
    return int(table.detail().collect()[0].numFiles)


class _Kept:
    """Rows on the disks of the executors."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame.persist(StorageLevel.DISK_ONLY)
        # Computed now, so that what counts them in passing has its numbers.
        self._frame.count()

    @property
    def frame(self) -> DataFrame:
        return self._frame

    def discard(self) -> None:
        self._frame.unpersist()
