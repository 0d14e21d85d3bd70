"""Compaction keeps every row, in fewer files, and drops old days; what a table of Parquet was to become, it becomes."""

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.core.schema import event_schema
from pipeline.core.tables.events import EVENTS
from pipeline.jobs.compact import Compacted, CompactSettings, compact
from pipeline.store import hadoop
from pipeline.store.sinks import open_store
from pipeline.transforms.events import with_hour
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event

TODAY = date(2026, 3, 4)
DAY_US = 24 * HOUR_US


class CutOffError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Ingest:
    """Give events of two hours, in three files each, and of a day much earlier."""
    job = Ingest(spark, tmp_path)
    rows = [event(seq, ts_us=T0_US + seq % 2 * HOUR_US) for seq in range(6)] + [event(9, ts_us=T0_US - 9 * DAY_US)]
    events = with_hour(spark.createDataFrame(rows, event_schema())).cache()
    store = open_store(spark, job.common)
    for some in ("seq < 2", "seq IN (2, 3)", "seq > 3"):
        staged = store.stage(EVENTS, events.where(some).coalesce(1))
        with store.exclusive() as opened:
            opened.add({EVENTS.name: staged})
        staged.discard()
    return job


def run(job: Ingest, retention_days: int | None = None) -> Compacted:
    return compact(job.spark, CompactSettings(job.common, TODAY, retention_days=retention_days), job.lines.append)


def files(job: Ingest) -> list[Path]:
    return sorted(Path(job.common.out, "events").rglob("*.parquet"))


def test_compaction_keeps_every_row_and_drops_old_days(job: Ingest) -> None:
    rows = job.events().toPandas().sort_values("seq", ignore_index=True)
    assert len(files(job)) == 7
    during = job.events()
    assert run(job) == Compacted(7, 3, 0)
    assert job.events().toPandas().sort_values("seq", ignore_index=True).equals(rows)
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        during.collect()
    assert run(job) == Compacted(3, 3, 0)
    assert run(job, retention_days=3) == Compacted(3, 2, 1)
    assert job.seqs() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("step", ["rename", "remove"])
def test_compaction_that_is_cut_off_loses_nothing(job: Ingest, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    original, done = getattr(hadoop, step), []

    def cut_off(*words: object) -> None:
        done.append(words)
        if len(done) == 2:
            raise CutOffError
        original(*words)

    with monkeypatch.context() as patch:
        patch.setattr(hadoop, step, cut_off)
        with pytest.raises(CutOffError):
            run(job)
    # Readers find it where it is; who writes next puts it where it belongs.
    assert job.seqs() == [0, 1, 2, 3, 4, 5, 9]
    assert run(job).after == 3
    assert job.seqs() == [0, 1, 2, 3, 4, 5, 9]
    assert len(files(job)) == 3
