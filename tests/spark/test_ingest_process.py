"""Ingest as a process, killed in mid-stream."""

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.ingesting import Ingest
from tests.spark.one_session import TEST_CONF
from tests.spark.processes import kill, process, wait_for
from tests.support.pipeline.event_lines import event, write_events

ROOT = Path(__file__).resolve().parents[2]
FILES = 8
EACH = 25


def options(job: Ingest) -> list[str]:
    conf = [word for key, value in TEST_CONF.items() for word in ("--conf", f"{key}={value}")]
    return ["ingest", "--source", f"files:{job.source}", "--out", job.common.out, *conf]


@pytest.mark.timeout(900)
def test_killed_in_mid_stream_it_goes_on_with_every_event_once(spark: SparkSession, tmp_path: Path) -> None:
    job = Ingest(spark, tmp_path)
    for number in range(FILES):
        path = write_events(job.source / f"{number}.jsonl.gz", (event(number * EACH + seq) for seq in range(EACH)))
        os.utime(path, (number + 1, number + 1))
    (job.source / "0.jsonl").write_text("no json\n")
    os.utime(job.source / "0.jsonl", (1, 1))
    stream = ["--trigger", "1ms", "--max-files", "1", "--master", "local[2]"]
    command = [sys.executable, "-m", "pipeline.cli", *options(job), *stream]
    log = tmp_path / "killed.log"
    with process(command, log, {**os.environ, "PYTHONPATH": str(ROOT)}) as child:
        wait_for("batch 3:", log, child)
        kill(child)
    written = len(job.seqs())
    assert 0 < written < FILES * EACH, "it was to be killed in mid-stream"
    job.run("once", max_files=3)
    assert job.seqs() == list(range(FILES * EACH))
    assert job.quarantine() == [("malformed", None, 1)]
