"""The job `storms`: the table `events` into `arrivals`, `storms` and `storm_members`."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import PipelineError
from pipeline.options import CommonSettings
from pipeline.periods import ALWAYS, Period, in_period
from pipeline.sinks import Staged, open_store, read_table
from pipeline.tables.events import EVENTS
from pipeline.tables.storms import ARRIVALS, STORM_MEMBERS, STORMS
from pipeline.tables.table import Table
from pipeline.transforms import storms as made

__all__ = ["StormSettings", "StormSummary", "find_storms"]


@dataclass(frozen=True, slots=True)
class StormSettings:
    """What a burst is, and how many names `storm_members` has for each question."""

    common: CommonSettings
    rule: made.BurstRule = made.USUAL_RULE
    top: int = 10
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class StormSummary:
    """What was found, for the line at the end of the job."""

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
