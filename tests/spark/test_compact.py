"""Compaction keeps every row, in fewer files, and drops old days."""

from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.jobs.compact import Compacted, CompactSettings, compact
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.store.tables import append, read_table
from tests.support.pipeline.usage_events import SECOND_US, event, frame

DAY_US = 86_400 * SECOND_US


def test_compaction_keeps_every_row_and_drops_old_days(spark: SparkSession, tmp_path: Path) -> None:
    common = CommonSettings(str(tmp_path / "out"), None, {})
    for number in range(3):
        append(common, EVENTS, frame(spark, [event(number), event(10 + number)]).coalesce(1))
    append(common, EVENTS, frame(spark, [event(-9 * DAY_US)]).coalesce(1))

    def run(retention_days: int | None = None) -> Compacted:
        return compact(spark, CompactSettings(common, date(2026, 1, 4), retention_days=retention_days), lambda _: None)

    def events() -> DataFrame:
        return read_table(spark, common, EVENTS)

    rows = sorted(events().collect())
    assert run() == Compacted(4, 2, 0)
    assert sorted(events().collect()) == rows
    assert run(retention_days=3) == Compacted(2, 1, 1)
    assert sorted(row.seq for row in events().collect()) == [0, 1, 2, 10, 11, 12]


def test_events_of_a_dropped_day_that_come_again_are_made_again(spark: SparkSession, tmp_path: Path) -> None:
    common = CommonSettings(str(tmp_path / "out"), None, {})
    old = frame(spark, [event(0)])
    append(common, EVENTS, old)
    make_usage(spark, UsageSettings(common))
    compact(spark, CompactSettings(common, date(2026, 2, 1), retention_days=3), lambda _: None)
    append(common, EVENTS, old)
    assert make_usage(spark, UsageSettings(common)).days == 1
