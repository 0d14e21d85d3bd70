"""Streams of files: the same events as a batch, each once, whatever comes again."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.ingest import IngestCounts
from pipeline.ingest.write import write
from pipeline.sources.files import EventFiles
from pipeline.store.sinks import open_store
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event, text, write_events

DAY_US = 24 * HOUR_US


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Ingest:
    return Ingest(spark, tmp_path)


def aged(path: Path, second: int) -> Path:
    """Give a file its place in the order in which a stream takes files."""
    os.utime(path, (second, second))
    return path


def test_stream_and_batch_keep_the_same(job: Ingest, tmp_path: Path) -> None:
    for number in range(3):
        path = job.source / f"{number}.jsonl.gz"
        lines = [event(seq, ts_us=T0_US + seq * HOUR_US // 4) for seq in range(number * 4, number * 4 + 6)]
        aged(write_events(path, lines), number + 1)
    aged(job.source / "0.jsonl.gz", 1)
    (job.source / "3.jsonl").write_text("no json\n" + json.dumps(event(1, kind="none")) + "\n")
    batch = Ingest(job.spark, tmp_path / "batch")
    shutil.copytree(job.source, batch.source, dirs_exist_ok=True)
    streamed, taken = job.run("once", max_files=2), batch.run()
    assert (
        (streamed.read, streamed.kept, streamed.duplicates) == (taken.read, taken.kept, taken.duplicates) == (20, 14, 4)
    )
    assert streamed.quarantined == taken.quarantined == {"malformed": 1, "bad_value": 1}
    assertDataFrameEqual(job.events(), batch.events())
    assert job.quarantine() == batch.quarantine()
    assert [line.split(":")[0] for line in job.lines] == ["batch 0", "batch 1"]
    assert job.run("once") == IngestCounts()


def test_late_events_are_set_aside_by_streams_only(job: Ingest) -> None:
    aged(write_events(job.source / "a.jsonl", [event(0), event(1, ts_us=T0_US - 2 * DAY_US)]), 1)
    late = [event(2, ts_us=T0_US - DAY_US - 1), event(3, ts_us=T0_US - DAY_US)]
    aged(write_events(job.source / "b.jsonl", late), 2)
    assert job.run("once", max_files=1).quarantined == {"late": 1}
    assert job.seqs() == [0, 1, 3]
    # To a stream that begins anew the same are duplicates, but for the one that nobody has.
    shutil.rmtree(Path(job.common.out, "_checkpoints"))
    (job.source / "c.jsonl").write_text("no json\n" + text([event(4), *late, late[0]]))
    again = job.run("once")
    assert (again.read, again.kept, again.duplicates, again.quarantined) == (9, 1, 4, {"late": 3, "malformed": 1})
    assert sorted(job.quarantine(), key=str) == [("late", None, 1), ("late", None, 2), ("malformed", None, 1)]
    assert job.run().kept == 1


def test_files_that_come_too_late_are_counted_and_warned_of(job: Ingest, capsys: pytest.CaptureFixture[str]) -> None:
    days = 86_400
    aged(write_events(job.source / "read before +.jsonl", [event(0)]), 1 * days)
    aged(write_events(job.source / "b.jsonl", [event(1)]), 40 * days)
    assert job.run("once", max_files=1).passed_by == 0
    aged(write_events(job.source / "too late.jsonl", [event(2)]), 9 * days)
    aged(write_events(job.source / "in time.jsonl", [event(3)]), 11 * days)
    counts = job.run("once")
    assert (counts.kept, counts.passed_by, job.seqs()) == (1, 1, [0, 1, 3])
    assert "1 files passed by, as they are older than --max-file-age" in str(counts)
    assert "warning: 1 event files passed by" in capsys.readouterr().err


def test_batch_that_comes_again_is_known(job: Ingest) -> None:
    aged(write_events(job.source / "a.jsonl", [event(0)]), 1)
    job.run("once")
    aged(write_events(job.source / "b.jsonl", [event(1), event(0)]), 2)
    (job.source / "c.jsonl").write_text("no json\n")
    counts = job.run("once")
    assert (counts.kept, counts.duplicates, counts.quarantined) == (1, 1, {"malformed": 1})
    files = sorted(Path(job.common.out, "events").rglob("*.parquet"))
    # As after a crash between the batch and Spark's note that it is done.
    for name in ("1", ".1.crc"):
        Path(job.common.out, "_checkpoints", "ingest", "commits", name).unlink()
    again = job.run("once")
    assert (again.kept, again.duplicates, again.quarantined) == (0, 2, {"malformed": 1})
    assert len(job.quarantine()) == 1
    assert sorted(Path(job.common.out, "events").rglob("*.parquet")) == files


def test_files_that_are_gone_are_an_error_or_passed_by(job: Ingest, capsys: pytest.CaptureFixture[str]) -> None:
    there = write_events(job.source / "a.jsonl", [event(0)])
    gone = str(job.source / "gone.jsonl.gz")
    store, began = open_store(job.spark, job.common), datetime(2026, 3, 1, tzinfo=UTC)
    with pytest.raises(PipelineError, match="event files were deleted before they were read") as caught:
        write(store, EventFiles(job.spark, (str(there), gone)), began)
    assert caught.value.code == ExitCode.DATA_LOSS
    some = write(store, EventFiles(job.spark, (str(there), gone), skip_gone=True), began)
    none = write(store, EventFiles(job.spark, (gone,), skip_gone=True), began)
    assert some is not None
    assert (some.read, some.kept, none) == (1, 1, IngestCounts())
    assert "1 of 2 event files were deleted" in capsys.readouterr().err
