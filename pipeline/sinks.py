"""Where tables are kept: read one, replace one, or add to some, in Delta or as plain Parquet.

Rule: rows are staged (computed once, looked at as often as need be) before the store is opened, and there is one writer
of a store at a time (`pipeline.writer`), who looks for what is there and commits. A reader gets the files of the
moment; if a compaction removes them meanwhile, it ends with an error, never with other rows.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import PipelineError
from pipeline.options import CommonSettings
from pipeline.paths import mounted
from pipeline.tables import Table

__all__ = ["Batch", "OpenStore", "Staged", "Store", "open_store", "read_table", "write_table"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of a stream; replayed, it has the same number."""

    stream: str
    number: int


class Staged(Protocol):
    """Rows that were computed once and can be looked at several times."""

    @property
    def frame(self) -> DataFrame:
        """Give the rows."""

    def discard(self) -> None:
        """Free what they take; again is no error."""


class OpenStore(Protocol):
    """A store that nobody else changes now."""

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to tables, by name; with Delta each table takes a batch once."""

    def replace(self, table: Table, rows: Staged) -> None:
        """Have a table hold these rows only."""


class Store(Protocol):
    """The tables of one directory."""

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        """Compute rows that are meant for a table; the caller discards them."""

    def exclusive(self) -> AbstractContextManager[OpenStore]:
        """Be the only one who changes the store; raises PipelineError if another does not end."""

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table, None if it was never written."""

    def merge(self, table: Table, target_bytes: int) -> tuple[int, int]:
        """Merge small files of a table into such of about this size; gives how many there were, and are."""

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the rows of earlier days from a table laid out by `date`; gives the number of files."""


def open_store(spark: SparkSession, settings: CommonSettings) -> Store:
    """Open the tables under `--out`; raises PipelineError for a place that cannot hold them."""
    path = mounted(settings.out)
    if path is not None and path.exists() and not path.is_dir():
        raise PipelineError(f"--out {settings.out}: got a file, expected a directory")
    # For Spark `/a` may be on another file system, and a relative path is below another directory.
    out = settings.out if path is None else f"file://{path}"
    if settings.format == "delta":
        # Imported here, since only the extra `delta` brings its package.
        from pipeline.delta import DeltaStore

        return DeltaStore(spark, out)
    from pipeline.parquet import ParquetStore

    return ParquetStore(spark, out)


def read_table(spark: SparkSession, settings: CommonSettings, table: Table) -> DataFrame:
    """Give the rows of a table; raises PipelineError if no job has written it yet."""
    rows = open_store(spark, settings).read(table)
    if rows is None:
        raise PipelineError(f"--out {settings.out}: found no table `{table.name}`: run the job that writes it first")
    return rows


def write_table(spark: SparkSession, settings: CommonSettings, table: Table, frame: DataFrame) -> None:
    """Have a table hold these rows only: all of them or, after a crash, those of before."""
    store = open_store(spark, settings)
    rows = store.stage(table, frame)
    try:
        with store.exclusive() as opened:
            opened.replace(table, rows)
    finally:
        rows.discard()
