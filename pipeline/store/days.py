"""Which days of `events` have changed since a job made its tables of them, so that a run costs what those days cost."""

from collections.abc import Mapping
from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import Period, whole_days
from pipeline.core.tables.days import DAYS
from pipeline.core.tables.events import EVENTS
from pipeline.store.tables import frame_of, read, read_table, replace_where

Days = Mapping[date, datetime]


def changed(spark: SparkSession, common: CommonSettings, job: str, period: Period) -> Days:
    """Return the days of a period with events that `job` has not seen, each with its newest; raises PipelineError.

    There must be events in the period at all.
    """
    events = whole_days(read_table(spark, common, EVENTS), period)
    found = {row[0]: row[1] for row in events.groupBy("date").agg(F.max("ingested_at")).collect()}
    if not found:
        raise PipelineError(f"--out {common.out}: found no event from {period}, expected at least one in `events`")
    before = read(spark, common, DAYS)
    seen = {} if before is None else {row.date: row.seen_at for row in before.where(F.col("job") == job).collect()}
    return {day: newest for day, newest in found.items() if day not in seen or seen[day] < newest}


def of_days(spark: SparkSession, common: CommonSettings, days: Days) -> DataFrame:
    """Return the events of these days."""
    return read_table(spark, common, EVENTS).where(F.col("date").isin(list(days)))


def note(spark: SparkSession, common: CommonSettings, job: str, days: Days) -> None:
    """Note that `job` has made its tables of these days, after it has."""
    rows = frame_of(spark, DAYS, ({"job": job, "date": day, "seen_at": newest} for day, newest in days.items()))
    named = ", ".join(f"DATE'{day.isoformat()}'" for day in days)
    replace_where(common, DAYS, rows, f"job = '{job}' AND date IN ({named})")
