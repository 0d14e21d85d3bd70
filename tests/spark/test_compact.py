"""Compaction keeps every row, in fewer files, and drops old days."""

from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.jobs.compact import Compacted, CompactSettings, compact
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event, write_events

TODAY = date(2026, 3, 4)
DAY_US = 24 * HOUR_US


def test_compaction_keeps_every_row_and_drops_old_days(spark: SparkSession, tmp_path: Path) -> None:
    job = Ingest(spark, tmp_path)
    for number in range(3):
        write_events(job.source / f"{number}.jsonl", [event(number), event(10 + number)])
        job.run()
    write_events(job.source / "old.jsonl", [event(99, ts_us=T0_US - 9 * DAY_US)])
    job.run()
    rows = sorted(job.events().collect())

    def run(retention_days: int | None = None) -> Compacted:
        return compact(spark, CompactSettings(job.common, TODAY, retention_days=retention_days), job.lines.append)

    assert run() == Compacted(4, 2, 0)
    assert sorted(job.events().collect()) == rows
    assert run(retention_days=3) == Compacted(2, 1, 1)
    assert job.seqs() == [0, 1, 2, 10, 11, 12]
