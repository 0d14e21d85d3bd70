"""The job `compact`: merge small files, and delete what is older than the retention."""

import argparse
import sys
from datetime import UTC, datetime

from pipeline.compact import CompactSettings, compact
from pipeline.errors import ExitCode, PipelineError
from pipeline.ingest.settings import MOST_US
from pipeline.options import add_common, common_settings
from pipeline.progress import at_work

__all__ = ["add_arguments", "run"]

MIB = 1024 * 1024
# Much more ago there are no dates.
MOST_DAYS = MOST_US // 86_400_000_000


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
