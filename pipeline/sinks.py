"""Where tables are kept: read one, replace one, or add to several in one step, in Parquet or Delta.

Rule: rows are staged (computed once, looked at as often as need be) before the store is locked, and a change of
Parquet tables is one of `pipeline.changes`: wholly there or not at all, for every table of it. A reader gets a list of
files, so that what comes later does not change what it reads; if a compaction removes its files meanwhile, it ends with
an error, never with other rows.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pipeline.changes import Change, Directory, Staging, Writer
from pipeline.errors import ExitCode, PipelineError
from pipeline.options import CommonSettings
from pipeline.paths import escaped, mounted
from pipeline.readers import ReadFiles
from pipeline.schema import require_table, table_schema
from pipeline.tables import Table

__all__ = [
    "ADDED",
    "Batch",
    "OpenParquet",
    "OpenStore",
    "ParquetStore",
    "Staged",
    "Store",
    "merged_of",
    "open_store",
    "read_table",
    "write_table",
]

COMPRESSION: Final = "zstd"
# How the names of files begin that hold rows added to a table, and of those that hold the rows of several such. A
# stream of a table reads the former only, or it would see rows again.
ADDED: Final = "part"
MERGED: Final = "merged"


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

    def is_applied(self, batch: Batch) -> bool:
        """Say whether this batch was written before."""

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to tables, by name, and remember the batch."""

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

    def merge(self, table: Table, target_bytes: int, written_before: float = math.inf) -> tuple[int, int]:
        """Merge small files of a table into such of about this size; gives how many there were, and are.

        Files written later than this time (seconds since 1970) stay as they are, and those that a stream of the table
        has still to read.
        """

    def unread(self, table: Table) -> int:
        """Count the files of a table that a stream of it has still to read."""

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the rows of earlier days from a table laid out by `date`; gives the number of files."""


def open_store(spark: SparkSession, settings: CommonSettings) -> Store:
    """Open the tables under `--out`; raises PipelineError for a place that cannot hold them."""
    if settings.format == "delta":
        # Imported here, since only the extra `delta` brings its package.
        from pipeline.delta import DeltaStore

        return DeltaStore(spark, settings.out)
    return ParquetStore(spark, _mounted(settings.out))


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


class ParquetStore:
    """Tables as directories of Parquet files, laid out by the columns that the table says."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._directory = Directory(root)

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        """Write rows where no reader looks."""
        return _StagedFiles(self._spark, self._directory.stage(table.name), table, frame)

    @contextmanager
    def exclusive(self) -> Iterator["OpenParquet"]:
        """Be the only one who changes the tables; raises PipelineError."""
        with self._directory.exclusive() as writer:
            yield OpenParquet(self._spark, self._directory.root, writer)

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table as they are between two changes."""
        return _frame(self._spark, table, self._directory.root, self._directory.files(table.name))

    def merge(self, table: Table, target_bytes: int, written_before: float = math.inf) -> tuple[int, int]:
        """Merge files of less than half the size, each partition in one step; raises PipelineError."""
        with self.exclusive() as opened:
            files = opened.files(table)
            opened.reads(table).forget(files)
            unread = opened.unread(table)
        small: dict[Path, list[Path]] = {}
        for path in files:
            if path in unread:
                continue
            found = path.stat()
            if found.st_size < target_bytes // 2 and found.st_mtime < written_before:
                small.setdefault(path.parent, []).append(path)
        for old in small.values():
            if len(old) > 1:
                self._merge(table, old, target_bytes)
        return len(files), len(self._directory.files(table.name))

    def unread(self, table: Table) -> int:
        """Count the files of a table that a stream of it has still to read."""
        with self.exclusive() as opened:
            return len(opened.unread(table))

    def read_merged(self, table: Table) -> tuple[list[Path], DataFrame | None]:
        """Give the merged files of a table, which streams of it pass by, and their rows, None without a file."""
        files = merged_of(self._directory.files(table.name))
        return files, _frame(self._spark, table, self._directory.root, files) if files else None

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the files of earlier days, in one step."""
        with self.exclusive() as opened:
            old = [path for path in opened.files(table) if (found := _day_of(path)) is not None and found < day]
            opened.remove_files(old)
        return len(old)

    def _merge(self, table: Table, old: list[Path], target_bytes: int) -> None:
        rows = _read(self._spark, table, self._directory.root / table.name, old)
        number = math.ceil(sum(path.stat().st_size for path in old) / target_bytes)
        order = [name for name in ("ts_us", *table.key) if name in rows.columns]
        # In the order of time, so that readers of a window can pass by row groups.
        staged = self.stage(table, rows.repartitionByRange(number, *order).sortWithinPartitions(*order))
        try:
            if staged.frame.count() != rows.count():
                raise PipelineError(f"table {table.name}: the merged files hold other rows", ExitCode.FAILED)
            with self.exclusive() as opened:
                # Another compaction may have been quicker, or a stream have begun.
                if set(old) <= set(opened.files(table)) and opened.unread(table).isdisjoint(old):
                    opened.replace_files(table, staged, old)
        finally:
            staged.discard()


class OpenParquet:
    """Parquet tables whose lock this process holds."""

    def __init__(self, spark: SparkSession, root: Path, writer: Writer) -> None:
        self._spark = spark
        self._root = root
        self._writer = writer

    def files(self, table: Table) -> list[Path]:
        """List the files of a table."""
        return self._writer.files(table.name)

    def read(self, table: Table) -> DataFrame | None:
        """Give the rows of a table."""
        return _frame(self._spark, table, self._root, self.files(table))

    def reads(self, table: Table) -> ReadFiles:
        """Give what streams of a table have read."""
        return ReadFiles(self._root, table.name)

    def unread(self, table: Table) -> set[Path]:
        """Give the files of a table that a stream of it has still to read: never a merged one."""
        files = self.files(table)
        return self.reads(table).unread(sorted(set(files) - set(merged_of(files))))

    def is_applied(self, batch: Batch) -> bool:
        """Say whether the stream has come at least this far."""
        number = self._writer.note(batch.stream)
        return number is not None and number >= batch.number

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to all these tables, and remember the batch, in one step."""
        self._change(rows, (), {batch.stream: batch.number} if batch else {})

    def replace(self, table: Table, rows: Staged) -> None:
        """Have a table hold these rows only, in one step."""
        self._change({table.name: rows}, tuple(str(path.relative_to(self._root)) for path in self.files(table)), {})

    def replace_files(self, table: Table, rows: Staged, old: list[Path]) -> None:
        """Have files with these rows, under names that streams of the table pass by, stand for others, in one step."""
        removes = tuple(str(path.relative_to(self._root)) for path in old)
        self._change({table.name: rows}, removes, {}, prefix=MERGED)

    def remove_files(self, old: list[Path]) -> None:
        """Remove files, in one step."""
        self._change({}, tuple(str(path.relative_to(self._root)) for path in old), {})

    def _change(
        self, rows: Mapping[str, Staged], removes: tuple[str, ...], notes: dict[str, int], prefix: str = ADDED
    ) -> None:
        name = uuid4().hex
        moves: list[tuple[str, str]] = []
        for table, staged in rows.items():
            assert isinstance(staged, _StagedFiles)
            # A table without a row is there, too: readers tell it from one that no job has written.
            (self._root / table).mkdir(parents=True, exist_ok=True)
            for number, path in enumerate(staged.files()):
                target = Path(table, path.relative_to(staged.path)).with_name(f"{prefix}-{name}-{number:05d}.parquet")
                moves.append((str(path.relative_to(self._root)), str(target)))
        self._writer.make(Change(name, tuple(moves), removes, notes))


class _StagedFiles:
    """Rows in files of their own."""

    def __init__(self, spark: SparkSession, staging: Staging, table: Table, frame: DataFrame) -> None:
        self.path = staging.path / "rows"
        self._spark = spark
        self._table = table
        self._staging = staging
        require_table(frame, table)
        try:
            writer = frame.write.partitionBy(*table.partition_by) if table.partition_by else frame.write
            writer.option("compression", COMPRESSION).parquet(f"file://{self.path}")
        except BaseException:
            staging.discard()
            raise

    @cached_property
    def frame(self) -> DataFrame:
        return _read(self._spark, self._table, self.path, [self.path])

    def files(self) -> list[Path]:
        return sorted(path for path in self.path.rglob("*.parquet") if not path.name.startswith("."))

    def discard(self) -> None:
        self._staging.discard()


def merged_of(files: list[Path]) -> list[Path]:
    """Choose the files that a compaction made."""
    return [path for path in files if path.name.startswith(f"{MERGED}-")]


def _day_of(path: Path) -> date | None:
    found = [part.removeprefix("date=") for part in path.parts if part.startswith("date=")]
    return date.fromisoformat(found[-1]) if found else None


def _frame(spark: SparkSession, table: Table, root: Path, files: list[Path]) -> DataFrame | None:
    directory = root / table.name
    if files:
        return _read(spark, table, directory, files)
    return spark.createDataFrame([], table_schema(table)) if directory.is_dir() else None


def _read(spark: SparkSession, table: Table, base: Path, paths: list[Path]) -> DataFrame:
    reader = spark.read.schema(table_schema(table)).option("basePath", f"file://{base}")
    return reader.parquet(*(f"file://{escaped(str(path))}" for path in paths)).select(
        [column.name for column in table.columns]
    )


def _mounted(out: str) -> Path:
    path = mounted(out)
    if path is None:
        raise PipelineError(
            f"--out {out}: --format parquet expected a mounted directory, since its changes need atomic renames;"
            " use --format delta for an object store"
        )
    if path.exists() and not path.is_dir():
        raise PipelineError(f"--out {out}: got a file, expected a directory")
    return path
