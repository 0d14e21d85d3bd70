"""Compaction keeps every row, in fewer files, whenever it is looked at or cut off."""

import math
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import changes
from pipeline.compact import Compacted, CompactSettings, compact
from pipeline.schema import event_schema
from pipeline.sinks import open_store
from pipeline.tables.events import EVENTS
from pipeline.transforms.events import with_hour
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event

TODAY = date(2026, 3, 4)
DAY_US = 24 * HOUR_US


class CutOffError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Ingest:
    """Give events of three hours, in two files each, and of a day much earlier."""
    job = Ingest(spark, tmp_path)
    rows = [event(seq, ts_us=T0_US + seq % 3 * HOUR_US) for seq in range(6)] + [event(9, ts_us=T0_US - 9 * DAY_US)]
    events = with_hour(spark.createDataFrame(rows, event_schema())).cache()
    store = open_store(spark, job.common)
    for some in ("seq < 3", "seq >= 3"):
        staged = store.stage(EVENTS, events.where(some).coalesce(1))
        with store.exclusive() as opened:
            opened.add({EVENTS.name: staged})
        staged.discard()
    return job


def run(job: Ingest, retention_days: int | None = None, written_before: float = math.inf) -> Compacted:
    return compact(
        job.spark, CompactSettings(job.common, TODAY, written_before, retention_days=retention_days), job.lines.append
    )


def files(job: Ingest) -> list[Path]:
    return sorted(Path(job.common.out, "events").rglob("*.parquet"))


def test_compaction_survives_being_cut_off_and_drops_old_days(job: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = job.events().toPandas().sort_values("seq", ignore_index=True)
    assert len(files(job)) == 7
    during = job.events()
    assert run(job, written_before=0) == Compacted(7, 7, 0)
    for step in ("_move", "_remove_empty", "_carry_out"):
        with monkeypatch.context() as patch:
            patch.setattr(changes, step, cut_off)
            with pytest.raises(CutOffError):
                run(job)
        assert job.seqs() == [0, 1, 2, 3, 4, 5, 9], step
    assert run(job).before == 4
    after = job.events().toPandas().sort_values("seq", ignore_index=True)
    assert after.equals(rows)
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        during.collect()
    assert run(job) == Compacted(4, 4, 0)
    assert [path.name.split("-")[0] for path in files(job)] == ["part", "merged", "merged", "merged"]
    assert run(job, retention_days=3) == Compacted(4, 3, 1)
    assert job.seqs() == [0, 1, 2, 3, 4, 5]


def cut_off(*_: object) -> None:
    raise CutOffError
