"""Tables as plain Parquet: for one writer at a time, and for readers that know nothing else.

Rows are staged as files under `_staging/`, where no reader looks, and moved in place one by one. A table's new rows
are moved to `_next/` as a whole, and take its place when those of before were moved away. Rule: a job that is killed
while it writes is run again: events that it left are found by their key, other tables are made anew. Streams of a table
and batches that a table takes once are what Delta is for (`pipeline.store.delta`).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.paths import escaped
from pipeline.core.schema import require_table, table_schema
from pipeline.core.tables import TABLES, Table
from pipeline.store import hadoop
from pipeline.store.lease import Clock, only_writer
from pipeline.store.protocol import Batch, OpenStore, Staged

COMPRESSION: Final = "zstd"
STAGING: Final = "_staging"
NEXT: Final = "_next"
# The age at which staged files are those of a killed process; no job takes as long.
LEFT_OVER_SECONDS: Final = 2 * 86_400.0
# Spark leaves it when all files of a job are there.
WHOLE: Final = "_SUCCESS"


class ParquetStore:
    """Tables as directories of Parquet files (see `Store`, and `OpenStore` while it is exclusive)."""

    def __init__(self, spark: SparkSession, root: str, clock: Clock | None = None) -> None:
        self._spark = spark
        self._root = root
        self._clock = clock

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        require_table(frame, table)
        place = self._new_place(table)
        staged = Staged(lambda: self._rows(table, place), lambda: hadoop.remove(self._spark, place), place)
        try:
            frame.write.partitionBy(*table.partition_by).option("compression", COMPRESSION).parquet(place)
        except BaseException:
            staged.discard()
            raise
        return staged

    @contextmanager
    def exclusive(self) -> Iterator[OpenStore]:
        with only_writer(self._spark, self._root, self._clock) as self._require:
            hadoop.remove_older(self._spark, f"{self._root}/{STAGING}", LEFT_OVER_SECONDS)
            yield self

    def read(self, table: Table) -> DataFrame | None:
        place, following = self._places(table)
        if hadoop.exists(self._spark, place):
            return self._rows(table, place)
        return self._rows(table, following) if hadoop.exists(self._spark, f"{following}/{WHOLE}") else None

    def stream_of(self, table: Table) -> str:
        return ""

    def add_up(self, table: Table, before: date, added: Callable[[DataFrame], DataFrame]) -> int:
        # Parts are a stream's, and streams need Delta.
        return 0

    def clean(self, table: Table, hours: int | None = None) -> None:
        """Delete nothing: files that are replaced are gone."""

    def merge(self, table: Table, target_bytes: int) -> tuple[int, int]:
        """Write a table anew if it has more than twice the files that it needs; returns how many it had, and has."""
        with self.exclusive():
            place = self._settled(table)
            files = hadoop.data_files(self._spark, place)
            number = math.ceil(hadoop.size(self._spark, place) / target_bytes) if files else 0
            if len(files) <= 2 * max(number, len({file.rpartition("/")[0] for file in files})):
                return len(files), len(files)
            rows = self._rows(table, place)
            order = [*table.partition_by, *(name for name in ("ts_us", *table.key) if name in rows.columns)]
            # In the order of time, so that readers of a window can pass by row groups.
            ordered = rows.repartitionByRange(number, *order).sortWithinPartitions(*order)
            with self.stage(table, ordered) as staged:
                self.replace(table, staged)
        return len(files), len(hadoop.data_files(self._spark, place))

    def drop_before(self, table: Table, day: date) -> int:
        with self.exclusive():
            place = self._settled(table)
            old = 0
            for name in hadoop.HadoopFiles(self._spark, place).names():
                if name.startswith("date=") and date.fromisoformat(name.removeprefix("date=")) < day:
                    self._require()
                    old += len(hadoop.data_files(self._spark, f"{place}/{name}"))
                    hadoop.remove(self._spark, f"{place}/{name}")
            return old

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        # Rows that a batch has added before are found by their key.
        for name, staged in rows.items():
            place, added = self._settled(TABLES[name]), uuid4().hex
            for number, file in enumerate(hadoop.data_files(self._spark, staged.place)):
                self._require()
                target = f"{place}/{file.rpartition('/')[0]}/part-{added}-{number:05d}.parquet"
                hadoop.rename(self._spark, f"{staged.place}/{file}", target)
            # A table without a row is there, too: readers tell it from one that no job has written.
            hadoop.make(self._spark, place)

    def replace(self, table: Table, rows: Staged) -> None:
        place, following = self._settled(table), self._places(table)[1]
        aside = self._new_place(table)
        hadoop.remove(self._spark, following)
        self._require()
        hadoop.rename(self._spark, rows.place, following)
        # In one step: to delete its files takes a while, and a job that is killed meanwhile would leave some of them.
        if hadoop.exists(self._spark, place):
            hadoop.rename(self._spark, place, aside)
        self._settled(table)
        hadoop.remove(self._spark, aside)

    def keep_for(self, table: Table, stream: str) -> None:
        raise PipelineError(f"{self._places(table)[0]}: got a stream, expected a table of Delta for it")

    def _settled(self, table: Table) -> str:
        """Return the place of a table, moved there if it was written to its end while that of before is gone."""
        place, following = self._places(table)
        if not hadoop.exists(self._spark, place) and hadoop.exists(self._spark, f"{following}/{WHOLE}"):
            hadoop.rename(self._spark, following, place)
        return place

    def _places(self, table: Table) -> tuple[str, str]:
        """Return where a table is, and where its new rows are until they take the place of those of before."""
        return f"{self._root}/{table.name}", f"{self._root}/{NEXT}/{table.name}"

    def _new_place(self, table: Table) -> str:
        return f"{self._root}/{STAGING}/{table.name}-{uuid4().hex}"

    def _rows(self, table: Table, place: str) -> DataFrame:
        schema = table_schema(table)
        return self._spark.read.schema(schema).parquet(escaped(place)).select(schema.names)
