"""The job `storms`: the table `events` into `arrivals`, `storms` and `storm_members`."""

import argparse
import math
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings, add_common, add_number, common_settings
from pipeline.core.periods import ALWAYS, Period, add_period, given_period, in_period
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.storms import ARRIVALS, STORM_MEMBERS, STORMS
from pipeline.core.tables.table import Table
from pipeline.running.progress import at_work
from pipeline.store.protocol import Staged
from pipeline.store.sinks import open_store, read_table
from pipeline.transforms import storms as made


@dataclass(frozen=True, slots=True)
class StormSettings:
    """The rule for a burst, and how many names `storm_members` has for each question."""

    common: CommonSettings
    rule: made.BurstRule = made.USUAL_RULE
    top: int = 10
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class StormSummary:
    """The findings for the line at the end of the job."""

    storms: int
    seconds: int
    peak_rate: int

    def __str__(self) -> str:
        return f"{self.storms:,} storms in {self.seconds:,} seconds with requests, at most {self.peak_rate:,} a second"


def find_storms(spark: SparkSession, settings: StormSettings) -> StormSummary:
    """Make the three tables from all events of the period; raises PipelineError if there are none.

    The driver holds 16 bytes for each second in which there were requests: 16 MB for a year of one a minute.
    """
    store = open_store(spark, settings.common)
    events = in_period(read_table(spark, settings.common, EVENTS), settings.period)
    with ExitStack() as staged:
        rows: dict[Table, Staged] = {}

        def stage(table: Table, frame: DataFrame) -> DataFrame:
            rows[table] = store.stage(table, frame)
            staged.callback(rows[table].discard)
            return rows[table].frame

        fleet = made.fleet_seconds(stage(ARRIVALS, made.arrivals(events))).toPandas()
        if not len(fleet):
            raise PipelineError(
                f"--out {settings.common.out}: found no topic list from {settings.period}, expected at least one in"
                " `events`"
            )
        requests = fleet["requests"].to_numpy(np.int64)
        found = made.bursts(fleet["second"].to_numpy(np.int64), requests, settings.rule, made.last_second(events))
        seconds = made.hot_seconds(spark, found)
        stage(STORMS, made.storms(events, seconds, found))
        stage(STORM_MEMBERS, made.storm_members(events, seconds, settings.top))
        with store.exclusive() as opened:
            for table, new in rows.items():
                opened.replace(table, new)
    return StormSummary(len(found), len(fleet), int(requests.max()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_period(parser)
    usual = made.USUAL_RULE
    stormy = "a second is stormy with K times the usual arrivals, the median of all seconds"
    add_number(parser, "--times", usual.times, "K", stormy)
    add_number(parser, "--floor", usual.floor, "N", "and with at least N")
    add_number(parser, "--gap", usual.gap_seconds, "S", "calmer seconds that a storm may have within it")
    add_number(parser, "--top", 10, "N", "names of each ranking in `storm_members`")


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError."""
    common = common_settings(options)
    rule = made.BurstRule(options.times, options.floor, options.gap)
    settings = StormSettings(common, rule, options.top, given_period(options))
    if not 1 <= rule.times < math.inf or rule.floor < 1 or rule.gap_seconds < 0 or settings.top < 1:
        got = f"{rule.times:g}, {rule.floor}, {rule.gap_seconds} and {settings.top}"
        raise PipelineError(f"--times, --floor, --gap and --top: got {got}, expected numbers of at least 1, 1, 0 and 1")
    with at_work("storms", common) as spark:
        summary = find_storms(spark, settings)
    print(f"storms: {summary}")
    return ExitCode.OK
