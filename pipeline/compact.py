"""Compaction: few files of a good size instead of many small ones, and no older days than are wanted.

Rule: merged files take the place of those they were made from in one step: that of Delta's log, or that a table of
Parquet gets its name. Streams of a table read Delta's log, where merged files bring no news.
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
    """One compaction; without `retention_days` no day is too old, `today` is the day in UTC."""

    common: CommonSettings
    today: date
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
            dropped = store.drop_before(table, settings.today - timedelta(days=settings.retention_days))
        before, after = store.merge(table, settings.target_bytes)
        if before or dropped:
            say(f"{table.name}: {dropped} files of old days deleted, {before} merged into {after}")
        total = Compacted(total.before + before + dropped, total.after + after, total.dropped + dropped)
    return total
