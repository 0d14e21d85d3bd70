"""Which days of `events` have changed since a job made its tables of them, so that a run costs what those days cost.

Events are added and never changed: a day with as many as before is the day of before.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import Period
from pipeline.core.tables import Table
from pipeline.core.tables.days import DAYS
from pipeline.core.tables.events import EVENTS
from pipeline.store.tables import Row, frame_of, on_days, read, read_table, replace_where

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """The days that have events, with their number; those of the period; and what jobs have made of how many."""

    events: Mapping[date, int]
    wanted: Collection[date]
    made: Mapping[tuple[str, str, date], int]

    def stale(self, job: str, options: str, days: Iterable[date]) -> list[date]:
        """Return those days that a job has not made of all their events with these options."""
        return [day for day in days if self.made.get((job, options, day)) != self.events[day]]

    def of_others(self, job: str, options: str) -> set[date]:
        """Return the days that a job has made with other options."""
        return {day for name, told, day in self.made if name == job and told != options}

    def around(self, days: Iterable[date], before: int, after: int) -> list[date]:
        """Return the days with events from so many days before one of these to so many after."""
        near = {day + number * DAY for day in days for number in range(-before, after + 1)}
        return sorted(near & self.events.keys())


def read_days(spark: SparkSession, common: CommonSettings, period: Period) -> Days:
    """Read the days of events of all clusters; raises PipelineError if there is none in the period."""
    events = {row[0]: row[1] for row in read_table(spark, common, EVENTS).groupBy("date").count().collect()}
    wanted = sorted(filter(period.touches, events))
    if not wanted:
        raise PipelineError(f"--out {common.out}: found no event from {period}, expected at least one in `events`")
    made = read(spark, common, DAYS)
    rows = [] if made is None else made.collect()
    return Days(events, wanted, {(row.job, row.options, row.date): row.events for row in rows})


def of_days(spark: SparkSession, common: CommonSettings, days: Iterable[date], table: Table = EVENTS) -> DataFrame:
    """Return the rows of these days, of events if no other table is given."""
    return read_table(spark, common, table).where(on_days(days))


def forget(
    spark: SparkSession, common: CommonSettings, days: Days, job: str, options: str, again: Collection[date]
) -> None:
    """Take back what is noted of these days with other options, before a job makes its tables of them again.

    A job that is killed half-way leaves tables of both options, which must not look like those of the old ones.
    """
    if old := sorted(days.of_others(job, options).intersection(again)):
        _replace(spark, common, job, old, [])


def note(
    spark: SparkSession, common: CommonSettings, days: Days, job: str, options: str, made: Collection[date]
) -> None:
    """Note that a job has made its tables of these days, after it has."""
    rows = [{"job": job, "date": day, "events": days.events[day], "options": options} for day in made]
    _replace(spark, common, job, made, rows)


def _replace(
    spark: SparkSession, common: CommonSettings, job: str, days: Collection[date], rows: Iterable[Row]
) -> None:
    replace_where(common, DAYS, frame_of(spark, DAYS, rows), f"job = '{job}' AND {on_days(days)}")
