"""The interface of a store of tables: rows are staged, computed once, then added or put in place by the only writer.

Rule: a reader gets the files of the moment; if a compaction removes them meanwhile, it ends with an error, never with
other rows.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Protocol

from pyspark.sql import DataFrame

from pipeline.core.tables import Table


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a stream; replayed, it has the same number."""

    stream: str
    number: int


@dataclass(frozen=True)
class Staged(AbstractContextManager["Staged"]):
    """Rows that were computed once and can be looked at several times, until `discard`, which again is no error.

    `read` gives them when somebody looks; `place` is the directory of those in files.
    """

    read: Callable[[], DataFrame]
    discard: Callable[[], object]
    place: str = ""

    @cached_property
    def frame(self) -> DataFrame:
        return self.read()

    def __exit__(self, *_: object) -> None:
        self.discard()


class OpenStore(Protocol):
    """A store that nobody else changes now."""

    def read(self, table: Table) -> DataFrame | None:
        """Return the rows of a table, None if it was never written."""

    def add(self, rows: Mapping[str, Staged], batch: Batch | None = None) -> None:
        """Add rows to tables, by name; with Delta each table takes a batch once."""

    def replace(self, table: Table, rows: Staged) -> None:
        """Replace all rows of a table by these."""

    def keep_for(self, table: Table, stream: str) -> None:
        """Mark a table as one that a stream adds to; raises PipelineError where no stream can."""


class Store(Protocol):
    """The tables of one directory."""

    def stage(self, table: Table, frame: DataFrame) -> Staged:
        """Compute rows that are meant for a table; the caller discards them."""

    def exclusive(self) -> AbstractContextManager[OpenStore]:
        """Acquire the sole right to change the store; raises PipelineError with the name of a holder that stays."""

    def read(self, table: Table) -> DataFrame | None:
        """Return the rows of a table, None if it was never written."""

    def stream_of(self, table: Table) -> str:
        """Return the stream for which a table is kept, empty without one."""

    def add_up(self, table: Table, before: date, added: Callable[[DataFrame], DataFrame]) -> int:
        """Combine, by `added`, all that a stream wrote for each earlier day to one part; returns the number of days."""

    def clean(self, table: Table, hours: int | None = None) -> None:
        """Delete the files that no reader needs since so many hours (default: the store's own time)."""

    def merge(self, table: Table, target_bytes: int) -> tuple[int, int]:
        """Merge small files of a table into such of about this size; returns how many there were, and are."""

    def drop_before(self, table: Table, day: date) -> int:
        """Delete the rows of earlier days from a table laid out by `date`; returns the number of files."""
