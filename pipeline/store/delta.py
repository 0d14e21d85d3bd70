"""Tables in Delta Lake: for object stores, and for users of its schema evolution and its history.

Rule: rows are computed once and kept on the executors' disks until they are in their tables. Each table has a log of
its own: after a crash between two tables of a change, the batch comes again, and what is there already is left out by
its key. Writers go one at a time (`pipeline.store.lease`), compaction, too: two would each miss what the other adds.
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
from pipeline.store.lease import Clock, only_writer
from pipeline.store.protocol import Batch, OpenStore, Staged

# The stream that adds to a table, as a property of it.
KEPT_FOR: Final = "pulsarProxyPipeline.stream"


class DeltaStore:
    """Tables under one URI (see `Store`, and `OpenStore` while it is exclusive)."""

    def __init__(self, spark: SparkSession, root: str, clock: Clock | None = None) -> None:
        self._spark = spark
        self._root = root
        self._clock = clock

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        require_table(frame, table)
        kept = frame.persist(StorageLevel.DISK_ONLY)
        # Computed now, so that what counts them in passing has its numbers.
        kept.count()
        return Staged(lambda: kept, kept.unpersist)

    @contextmanager
    def exclusive(self) -> Iterator[OpenStore]:
        # Delta itself does not keep two appends of the same event apart, and on S3 not even two commits.
        with only_writer(self._spark, self._root, self._clock) as self._require:
            yield self

    def read(self, table: Table) -> DataFrame | None:
        found = self._delta(table)
        if found is None:
            return None
        rows = found.toDF()
        # A column that came later is not in a table until rows with the column are added.
        later = [column for column in table_schema(table) if column.name not in rows.columns]
        filled = rows.withColumns({column.name: F.lit(None).cast(column.dataType) for column in later})
        return filled.select([column.name for column in table.columns])

    def stream_of(self, table: Table) -> str:
        found = self._delta(table)
        return "" if found is None else str(found.detail().collect()[0].properties.get(KEPT_FOR, ""))

    def add_up(self, table: Table, before: date, added: Callable[[DataFrame], DataFrame]) -> int:
        """Combine, by `added`, all that a stream wrote for each earlier day to one part; returns the number of days.

        The part gets a number above 0, as the stream's own; its batches stay marked in the log, so that one that comes
        again is left out as before.
        """
        # Nothing may be added between the look and the commit.
        with self.exclusive():
            if (rows := self.read(table)) is None:
                return 0
            old = rows.where((F.col("date") < F.lit(before)) & (F.col("part") > 0))
            counts = old.groupBy("date").agg(F.count_distinct("part").alias("parts"), F.max("part").alias("last"))
            if not (days := counts.where("parts > 1").collect()):
                return 0
            dates = [each.date for each in days]
            last = F.lit(max(each["last"] for each in days)).cast("long")
            whole = added(rows.where(F.col("date").isin(dates))).withColumn("part", last)
            with self.stage(table, whole.select(rows.columns)) as staged:
                self._replace_days(table, staged, dates)
            return len(days)

    def clean(self, table: Table, hours: int | None = None) -> None:
        # Delta takes less than its week for a mistake: somebody may be writing. Here nobody else is.
        self._spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        if (found := self._delta(table)) is not None:
            with self.exclusive():
                self._require()
                found.vacuum(hours)

    def merge(self, table: Table, target_bytes: int) -> tuple[int, int]:
        # Files of any age are merged: streams of Delta pass by what is merged.
        self._spark.conf.set("spark.databricks.delta.optimize.maxFileSize", target_bytes)
        with self.exclusive():
            if (found := self._delta(table)) is None:
                return 0, 0
            before = _files(found)
            self._require()
            found.optimize().executeCompaction()
            return before, _files(found)

    def drop_before(self, table: Table, day: date) -> int:
        with self.exclusive():
            if (found := self._delta(table)) is None:
                return 0
            before = _files(found)
            self._require()
            # The files themselves go with `clean`.
            found.delete(F.col("date") < F.lit(day))
            return before - _files(found)

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        once: dict[str, str | int] = {} if batch is None else {"txnAppId": batch.stream, "txnVersion": batch.number}
        for name, staged in rows.items():
            self._write(TABLES[name], staged, "append", once)

    def replace(self, table: Table, rows: Staged) -> None:
        # The session overwrites partitions only; here the whole table is meant.
        self._write(table, rows, "overwrite", {"partitionOverwriteMode": "static"})

    def keep_for(self, table: Table, stream: str) -> None:
        """Record a stream beside a table, also before its first batch; the record stays when rows are replaced."""
        if self.stream_of(table) != stream:
            self._require()
            path = self._path(table).replace("`", "``")
            self._spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{KEPT_FOR}' = '{stream}')")

    def _replace_days(self, table: Table, rows: Staged, days: Sequence[date]) -> None:
        named = ", ".join(f"DATE'{day.isoformat()}'" for day in days)
        options = {"partitionOverwriteMode": "static", "replaceWhere": f"date IN ({named})"}
        self._write(table, rows, "overwrite", options)

    def _write(self, table: Table, rows: Staged, mode: str, options: Mapping[str, str | int]) -> None:
        # New columns may be null, and are added to a table of before.
        writer = rows.frame.write.format("delta").mode(mode).option("mergeSchema", True).options(**options)
        self._require()
        writer.partitionBy(*table.partition_by).save(self._path(table))

    def _delta(self, table: Table) -> DeltaTable | None:
        path = self._path(table)
        return DeltaTable.forPath(self._spark, path) if DeltaTable.isDeltaTable(self._spark, path) else None

    def _path(self, table: Table) -> str:
        return f"{self._root}/{table.name}"


def _files(table: DeltaTable) -> int:
    return int(table.detail().collect()[0].numFiles)
