"""Which days of `events` have changed since a job made its tables of them, so that a run costs what those days cost.

Events are added and never changed: a day with as many as before is the day of before.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import Period
from pipeline.core.tables.days import DAYS
from pipeline.core.tables.events import EVENTS
from pipeline.store.tables import frame_of, read, read_table, replace_where

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """The days that have events, and those of them that a job has to make again; each with the number of its events."""

    there: Mapping[date, int]
    changed: Mapping[date, int]

    def around(self, before: int, after: int) -> list[date]:
        """Return the days with events from so many days before a changed one to so many after."""
        near = {day + number * DAY for day in self.changed for number in range(-before, after + 1)}
        return sorted(near & self.there.keys())


def changed_days(spark: SparkSession, common: CommonSettings, job: str, options: str, period: Period) -> Days:
    """Find the days of a period that `job` has not made of these events with these `options`; raises PipelineError.

    There must be events in the period. A day is made of all clusters at once.
    """
    counted = read_table(spark, common, EVENTS).groupBy("date").count().collect()
    there = {row[0]: row[1] for row in counted}
    wanted = {day: events for day, events in there.items() if period.touches(day)}
    if not wanted:
        raise PipelineError(f"--out {common.out}: found no event from {period}, expected at least one in `events`")
    before = read(spark, common, DAYS)
    rows = [] if before is None else before.where((F.col("job") == job) & (F.col("options") == options)).collect()
    made = {row.date: row.events for row in rows}
    return Days(there, {day: events for day, events in wanted.items() if made.get(day) != events})


def of_days(spark: SparkSession, common: CommonSettings, days: Collection[date]) -> DataFrame:
    """Return the events of these days."""
    return read_table(spark, common, EVENTS).where(F.col("date").isin(list(days)))


def note(spark: SparkSession, common: CommonSettings, job: str, options: str, days: Days) -> None:
    """Note that `job` has made its tables of the changed days, after it has."""
    rows = [{"job": job, "date": day, "events": n, "options": options} for day, n in days.changed.items()]
    named = ", ".join(f"DATE'{day.isoformat()}'" for day in days.changed)
    replace_where(common, DAYS, frame_of(spark, DAYS, rows), f"job = '{job}' AND date IN ({named})")
