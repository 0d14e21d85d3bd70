"""Tables as plain Parquet: for one writer at a time, and for readers that know nothing else.

Rows are staged as files under `_staging/`, where no reader looks, and moved in place one by one. What replaces a table
is moved to `_next/` as a whole, and takes its place when that of before was moved away. Rule: a job that is killed
while it writes is run again: events that it left are found by their key, other tables are made anew. Streams of a table
and batches that a table takes once are what Delta is for (`pipeline.store.delta`).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cached_property
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.paths import escaped
from pipeline.core.schema import require_table, table_schema
from pipeline.core.tables import TABLES, Table
from pipeline.store import hadoop
from pipeline.store.lease import Clock
from pipeline.store.protocol import Batch, Staged
from pipeline.store.writer import only_writer

__all__ = ["ParquetStore"]

COMPRESSION: Final = "zstd"
STAGING: Final = "_staging"
NEXT: Final = "_next"
# What a killed process staged; no job takes as long.
LEFT_OVER_SECONDS: Final = 2 * 86_400.0
# Spark leaves it when all files of a job are there.
WHOLE: Final = "_SUCCESS"


class ParquetStore:
    """Tables as directories of Parquet files, laid out by the columns that the table says."""

    def __init__(self, spark: SparkSession, root: str, clock: Clock | None = None) -> None:
        self.spark = spark
        self.root = root
        self._clock = clock

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        """Compute rows that are meant for a table; the caller discards them."""
        return _StagedFiles(self, table, frame)

    @contextmanager
    def exclusive(self) -> Iterator["OpenParquet"]:
        """Be the only one who changes the tables; raises PipelineError with the name of who does not end."""
        with only_writer(self.spark, self.root, self._clock) as require:
            hadoop.remove_older(self.spark, f"{self.root}/{STAGING}", LEFT_OVER_SECONDS)
            yield OpenParquet(self, require)

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""
        for place in (self.place(table), self.next_place(table)):
            if hadoop.exists(self.spark, place if place == self.place(table) else f"{place}/{WHOLE}"):
                return _read(self.spark, table, place)
        return None

    def stream_of(self, table: Table) -> str:
        """Name no stream: they need Delta."""
        return ""

    def add_up(self, table: Table, before: date, added: Callable[[DataFrame], DataFrame]) -> int:
        """Add nothing up: parts are a stream's."""
        return 0

    def clean(self, table: Table, hours: int | None = None) -> None:
        """Delete nothing: files that are replaced are gone."""

    def merge(self, table: Table, target_bytes: int) -> tuple[int, int]:
        """Write a table anew if it has more than twice the files that it needs."""
        with self.exclusive() as opened:
            opened.settle(table)
            files = hadoop.data_files(self.spark, self.place(table))
            number = math.ceil(hadoop.size(self.spark, self.place(table)) / target_bytes) if files else 0
            if len(files) <= 2 * max(number, len({file.rpartition("/")[0] for file in files})):
                return len(files), len(files)
            rows = _read(self.spark, table, self.place(table))
            order = [*table.partition_by, *(name for name in ("ts_us", *table.key) if name in rows.columns)]
            # In the order of time, so that readers of a window can pass by row groups.
            staged = self.stage(table, rows.repartitionByRange(number, *order).sortWithinPartitions(*order))
            try:
                opened.replace(table, staged)
            finally:
                staged.discard()
        return len(files), len(hadoop.data_files(self.spark, self.place(table)))

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the directories of earlier days; gives the number of files."""
        with self.exclusive() as opened:
            opened.settle(table)
            old = 0
            for name in hadoop.names(self.spark, self.place(table)):
                if name.startswith("date=") and date.fromisoformat(name.removeprefix("date=")) < day:
                    opened.require()
                    old += len(hadoop.data_files(self.spark, f"{self.place(table)}/{name}"))
                    hadoop.remove(self.spark, f"{self.place(table)}/{name}")
            return old

    def place(self, table: Table) -> str:
        """Say where a table is."""
        return f"{self.root}/{table.name}"

    def next_place(self, table: Table) -> str:
        """Say where a table is until it takes the place of that of before."""
        return f"{self.root}/{NEXT}/{table.name}"


class OpenParquet:
    """Tables that nobody else changes now; `require` raises PipelineError if another may, by now."""

    def __init__(self, store: ParquetStore, require: Callable[[], None]) -> None:
        self.require = require
        self._store = store

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""
        return self._store.read(table)

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to tables, by name; what a batch has added before is for its key to tell."""
        spark = self._store.spark
        for name, staged in rows.items():
            assert isinstance(staged, _StagedFiles)
            self.settle(TABLES[name])
            place, added = self._store.place(TABLES[name]), uuid4().hex
            for number, file in enumerate(hadoop.data_files(spark, staged.place)):
                self.require()
                directory = file.rpartition("/")[0]
                hadoop.rename(spark, f"{staged.place}/{file}", f"{place}/{directory}/part-{added}-{number:05d}.parquet")
            # A table without a row is there, too: readers tell it from one that no job has written.
            hadoop.make(spark, place)

    def replace(self, table: Table, rows: Staged) -> None:
        """Have a table hold these rows only."""
        assert isinstance(rows, _StagedFiles)
        self.settle(table)
        spark, following = self._store.spark, self._store.next_place(table)
        place, aside = self._store.place(table), f"{self._store.root}/{STAGING}/{table.name}-{uuid4().hex}"
        hadoop.remove(spark, following)
        self.require()
        hadoop.rename(spark, rows.place, following)
        # In one step: to delete its files takes a while, and a job that is killed meanwhile would leave some of them.
        if hadoop.exists(spark, place):
            hadoop.rename(spark, place, aside)
        self.settle(table)
        hadoop.remove(spark, aside)

    def keep_for(self, table: Table, stream: str) -> None:
        """Raise PipelineError."""
        raise PipelineError(f"{self._store.place(table)}: got a stream, expected a table of Delta for it")

    def settle(self, table: Table) -> None:
        """Put a table in its place that was written to its end while that of before is gone."""
        place, following = self._store.place(table), self._store.next_place(table)
        spark = self._store.spark
        if not hadoop.exists(spark, place) and hadoop.exists(spark, f"{following}/{WHOLE}"):
            hadoop.rename(spark, following, place)


class _StagedFiles:
    """Rows in files of their own."""

    def __init__(self, store: ParquetStore, table: Table, frame: DataFrame) -> None:
        self.place = f"{store.root}/{STAGING}/{table.name}-{uuid4().hex}"
        self._spark = store.spark
        self._table = table
        require_table(frame, table)
        writer = frame.write.partitionBy(*table.partition_by) if table.partition_by else frame.write
        try:
            writer.option("compression", COMPRESSION).parquet(self.place)
        except BaseException:
            self.discard()
            raise

    @cached_property
    def frame(self) -> DataFrame:
        return _read(self._spark, self._table, self.place)

    def discard(self) -> None:
        hadoop.remove(self._spark, self.place)


def _read(spark: SparkSession, table: Table, place: str) -> DataFrame:
    schema = table_schema(table)
    return spark.read.schema(schema).parquet(escaped(place)).select(schema.names)
