"""Compaction: few files of a good size instead of many small ones, and no older days than are wanted.

Rule: merged files take the place of those they were made from in one commit.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.model import MIB
from pipeline.core.options import CommonSettings, add_common, common_settings
from pipeline.core.tables import TABLES
from pipeline.core.tables.days import DAYS
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.whatif import REPLAY_INPUT
from pipeline.ingest.settings import MOST_US
from pipeline.running.session import at_work, nothing_printed
from pipeline.store.tables import clean, drop_before, merge_files, read_table

__all__ = ["CompactSettings", "Compacted", "add_arguments", "compact", "run"]

# Much more ago there are no dates.
MOST_DAYS: Final = MOST_US // 86_400_000_000


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """The settings of a compaction; without `retention_days` no day is too old, `today` is the day in UTC."""

    common: CommonSettings
    today: date
    target_bytes: int = 128 * MIB
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """Files before and after, and those of them that were too old."""

    before: int = 0
    after: int = 0
    dropped: int = 0


def compact(spark: SparkSession, settings: CompactSettings, say: Callable[[str], None]) -> Compacted:
    """Drop old days, merge what is left, of tables laid out by days; delete files that nobody needs.

    Raises PipelineError.
    """
    common, total = settings.common, Compacted()
    oldest = None if settings.retention_days is None else settings.today - timedelta(days=settings.retention_days)
    if oldest is not None:
        # First, so that events of old days that come again are new ones.
        drop_before(spark, common, DAYS, oldest)
    for table in TABLES.values():
        if "date" not in table.partition_by:
            continue
        dropped = 0 if oldest is None else drop_before(spark, common, table, oldest)
        before, after = merge_files(spark, common, table, settings.target_bytes)
        if before or dropped:
            say(f"{table.name}: {dropped} files of old days deleted, {before} merged into {after}")
        total = Compacted(total.before + before + dropped, total.after + after, total.dropped + dropped)
    with nothing_printed(spark):
        for table in TABLES.values():
            if table is not REPLAY_INPUT:
                clean(spark, common, table)
    return total


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    parser.add_argument(
        "--retention-days", type=int, metavar="N", help="delete days that are more than N days ago (default: none)"
    )
    parser.add_argument(
        "--target-file-mb", type=int, default=128, metavar="N", help="size of merged files (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    settings = compact_settings(options)
    with at_work("compact", settings.common) as spark:
        # Without, a wrong --out would be compacted every night, and nobody would know.
        read_table(spark, settings.common, EVENTS)
        done = compact(spark, settings, lambda line: print(f"compact: {line}", file=sys.stderr, flush=True))
    print(f"compact: {done.before} files before, {done.after} after, {done.dropped} of old days deleted")
    return ExitCode.OK


def compact_settings(options: argparse.Namespace) -> CompactSettings:
    """Take the options; raises PipelineError for what makes no sense."""
    if options.retention_days is not None and options.retention_days > MOST_DAYS:
        raise PipelineError(f"--retention-days: got {options.retention_days}, expected {MOST_DAYS} or less")
    for name, least in (("retention_days", 1), ("target_file_mb", 1)):
        given = getattr(options, name)
        if given is not None and given < least:
            raise PipelineError(f"--{name.replace('_', '-')}: got {given}, expected {least} or more")
    today = datetime.now(UTC).date()
    return CompactSettings(common_settings(options), today, options.target_file_mb * MIB, options.retention_days)
