"""Compaction keeps every row, in fewer files, and drops old days."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.jobs.compact import CompactSettings, compact
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.store.tables import append, read_table
from tests.support.pipeline.usage_events import SECOND_US, event, frame

DAY_US = 86_400 * SECOND_US


@contextmanager
def printed_by_scala(spark: SparkSession) -> Iterator[Callable[[], str]]:
    """Give what Scala's println prints meanwhile."""
    jvm: Any = spark._jvm
    console, written = getattr(getattr(jvm.scala, "Console$"), "MODULE$"), jvm.java.io.ByteArrayOutputStream()
    before = console.out()
    console.setOutDirect(jvm.java.io.PrintStream(written, True))
    try:
        yield written.toString
    finally:
        console.setOutDirect(before)


def test_compaction_keeps_every_row_and_drops_old_days_which_are_made_again_if_they_come_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    common = CommonSettings(str(tmp_path / "out"), None, {})
    old = frame(spark, [event(-9 * DAY_US)]).coalesce(1)
    for number in range(3):
        append(common, EVENTS, frame(spark, [event(number), event(10 + number)]).coalesce(1))
    append(common, EVENTS, old)

    def run(retention_days: int | None = None) -> list[str]:
        said: list[str] = []
        compact(spark, CompactSettings(common, date(2026, 1, 4), retention_days=retention_days), said.append)
        return said

    def usage() -> int:
        return make_usage(spark, UsageSettings(common)).days

    def events() -> DataFrame:
        return read_table(spark, common, EVENTS)

    rows = sorted(events().collect())
    with printed_by_scala(spark) as printed:
        assert run() == ["events: 0 files of old days deleted, 4 merged into 2"]
    assert printed() == ""
    assert sorted(events().collect()) == rows
    assert usage() == 2
    assert "events: 1 files of old days deleted, 1 merged into 1" in run(retention_days=3)
    assert sorted(row.seq for row in events().collect()) == [0, 1, 2, 10, 11, 12]
    append(common, EVENTS, old)
    assert usage() == 1
