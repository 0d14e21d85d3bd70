"""Tables in Delta Lake: for object stores, and for who wants its schema evolution and its history.

Rule: rows are computed once and kept on the executors' disks until they are in their tables. Each table has a log of
its own: after a crash between two tables of a change, the batch comes again, and what is there already is left out by
its key.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Final

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.schema import require_table, table_schema
from pipeline.sinks import Batch, Staged
from pipeline.tables import TABLES, Table

__all__ = ["DeltaStore"]

APPLICATION: Final = "txnAppId"
VERSION: Final = "txnVersion"


class DeltaStore:
    """Tables under one URI; Delta's own log orders those who write."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        """Compute rows that are meant for a table; the caller discards them."""
        require_table(frame, table)
        return _Kept(frame)

    @contextmanager
    def exclusive(self) -> Iterator["DeltaStore"]:
        """Give the store itself: Delta refuses what conflicts with another's change."""
        yield self

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""
        path = self.path(table)
        if not DeltaTable.isDeltaTable(self._spark, path):
            return None
        found = self._spark.read.format("delta").load(path)
        # A column that came later is not in a table until rows with the column are added.
        later = [column for column in table_schema(table) if column.name not in found.columns]
        filled = found.withColumns({column.name: F.lit(None).cast(column.dataType) for column in later})
        return filled.select([column.name for column in table.columns])

    def is_applied(self, batch: Batch) -> bool:
        """Say no: Delta itself passes over a batch that a table has."""
        return False

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to tables, by name; each table takes a batch once."""
        for name, staged in rows.items():
            self._write(name, staged.frame, "append", batch)

    def replace(self, table: Table, rows: Staged) -> None:
        """Have a table hold these rows only."""
        self._write(table.name, rows.frame, "overwrite", None)

    def merge(self, table: Table, target_bytes: int, written_before: float = math.inf) -> tuple[int, int]:
        """Have Delta merge small files of any age: its streams pass by what is merged."""
        if self.read(table) is None:
            return 0, 0
        self._spark.conf.set("spark.databricks.delta.optimize.maxFileSize", target_bytes)
        before = self._files(table)
        DeltaTable.forPath(self._spark, self.path(table)).optimize().executeCompaction()
        return before, self._files(table)

    def unread(self, table: Table) -> int:
        """Count none: a stream reads Delta's log, where merged files bring no news."""
        return 0

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the rows of earlier days; their files go when Delta's own retention is over."""
        if self.read(table) is None:
            return 0
        before = self._files(table)
        found = DeltaTable.forPath(self._spark, self.path(table))
        found.delete(F.col("date") < F.lit(day))
        found.vacuum()
        return before - self._files(table)

    def _files(self, table: Table) -> int:
        detail = DeltaTable.forPath(self._spark, self.path(table)).detail()
        return int(detail.collect()[0].numFiles)

    def path(self, table: Table) -> str:
        """Say where a table is."""
        return f"{self._root}/{table.name}"

    def _write(self, name: str, frame: DataFrame, mode: str, batch: Batch | None) -> None:
        table = TABLES[name]
        # New columns may be null, and are added to a table of before.
        writer = frame.write.format("delta").mode(mode).option("mergeSchema", True).partitionBy(*table.partition_by)
        if mode == "overwrite":
            # The session overwrites partitions only; here the whole table is meant.
            writer = writer.option("partitionOverwriteMode", "static")
        if batch is not None:
            writer = writer.option(APPLICATION, batch.stream).option(VERSION, batch.number)
        writer.save(self.path(table))


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
