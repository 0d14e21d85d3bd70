"""Compaction: few files of a good size instead of many small ones, and no older days than are wanted.

Rule: a reader or a crash at any time sees every row once (`pipeline.changes`; with Delta its own log): merged files
take the place of those they were made from in one step, partition by partition. What a stream of a table has still to
read is not merged (`pipeline.readers`), since streams pass by merged files; retention deletes it all the same, and
says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import SparkSession

from pipeline.options import CommonSettings
from pipeline.sinks import open_store
from pipeline.tables import TABLES

__all__ = ["CompactSettings", "Compacted", "compact"]


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """One compaction; without `retention_days` no day is too old, `today` is the day in UTC.

    Files written later than `written_before` (seconds since 1970) are left for streams of other programs, which read
    files as they were written, and must have had the time to.
    """

    common: CommonSettings
    today: date
    written_before: float
    target_bytes: int = 128 * 1024 * 1024
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """Files before and after, and those of them that were too old."""

    before: int = 0
    after: int = 0
    dropped: int = 0


def compact(spark: SparkSession, settings: CompactSettings, say: Callable[[str], None]) -> Compacted:
    """Drop old days, then merge what is left, of every table that is laid out by days; raises PipelineError."""
    store = open_store(spark, settings.common)
    total = Compacted()
    for table in TABLES.values():
        if "date" not in table.partition_by:
            continue
        dropped = 0
        if settings.retention_days is not None:
            unread = store.unread(table)
            dropped = store.drop_before(table, settings.today - timedelta(days=settings.retention_days))
            if missed := max(0, unread - store.unread(table)):
                say(f"{table.name}: {missed} files of old days deleted that `usage --stream` had not read")
        before, after = store.merge(table, settings.target_bytes, settings.written_before)
        if before or dropped:
            say(f"{table.name}: {dropped} files of old days deleted, {before} merged into {after}")
        if left := store.unread(table):
            say(
                f"{table.name}: {left} files left as they are, since `usage --stream` has not read them: run it before"
                " `compact`; if it is to run no more, delete `_notes/usage`"
            )
        total = Compacted(total.before + before + dropped, total.after + after, total.dropped + dropped)
    return total
