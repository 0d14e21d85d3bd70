"""The job `usage`: changed days of `events` into `usage`, `waits`, `sharing`, `top_costs` and `slowed`."""

import argparse
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings, add_common, add_number, common_settings
from pipeline.core.periods import ALWAYS, Period, add_days, given_period, window_seconds
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.running.session import at_work
from pipeline.store.days import forget, note, of_days, read_days
from pipeline.store.tables import replace_days
from pipeline.transforms import usage as made
from pipeline.transforms.slowed import slowed

NAME = "usage"


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """How long windows are, how many names `top_costs` has for each question, and which days are looked at."""

    common: CommonSettings
    window_seconds: int = 60
    top: int = 20
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """What the days that were made hold, for the line at the end of the job."""

    days: int = 0
    rows: int = 0
    requests: int = 0
    refused: int = 0
    watch_frames: int = 0
    heap_byte_seconds: float = 0.0

    def __str__(self) -> str:
        if not self.days:
            return "nothing new"
        return (
            f"{self.requests:,} requests, {self.refused:,} refused, {self.watch_frames:,} watch frames,"
            f" {self.heap_byte_seconds / 2**20:,.1f} MiB*s of heap, in {self.rows:,} rows of {self.days:,} days"
        )


def make_usage(spark: SparkSession, settings: UsageSettings) -> UsageSummary:
    """Make the five tables of the days with new events, each in place of what it had; raises PipelineError."""
    common, seconds = settings.common, settings.window_seconds
    told = f"window={seconds}s top={settings.top}"
    days = read_days(spark, common, settings.period)
    dates = days.stale(NAME, told, days.wanted)
    if not dates:
        return UsageSummary()
    forget(spark, common, days, NAME, told, dates)
    events = of_days(spark, common, dates)
    replace_days(common, USAGE, made.usage(events, seconds), dates)
    # To read what was written costs less than to compute it again, or to keep it aside.
    usage = of_days(spark, common, dates, USAGE)
    replace_days(common, SHARING, made.sharing(usage), dates)
    replace_days(common, TOP_COSTS, made.top_costs(usage, settings.top), dates)
    replace_days(common, WAITS, made.waits(events, seconds), dates)
    # A time in which a topic is slowed may begin on one day and end on the next.
    near = days.around(dates, 1, 1)
    of_near = slowed(of_days(spark, common, days.around(dates, 2, 2))).where(F.col("date").isin(near))
    replace_days(common, SLOWED, of_near, near)
    note(spark, common, days, NAME, told, dates)
    return _summary_of(usage, len(dates))


def _summary_of(usage: DataFrame, days: int) -> UsageSummary:
    names = ("requests", "refused", "watch_frames", "heap_byte_seconds")
    (found,) = usage.agg(F.count(F.lit(1)).alias("rows"), *(F.sum(name).alias(name) for name in names)).collect()
    return UsageSummary(days, found["rows"], *(found[name] or 0 for name in names))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_days(parser)
    parser.add_argument("--window", default="1m", metavar="TIME", help="length of a window (default: %(default)s)")
    add_number(parser, "--top", 20, "N", "names of each ranking in `top_costs`")


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError."""
    common, period = common_settings(options), given_period(options)
    settings = UsageSettings(common, window_seconds("--window", options.window), options.top, period)
    if settings.top < 1:
        raise PipelineError(f"--top: got {settings.top}, expected at least 1")
    with at_work(NAME, common) as spark:
        print(f"usage: {make_usage(spark, settings)}")
    return ExitCode.OK
