"""An ingest that is killed in the midst of its work, as a process of its own, goes on where it was; and one refused."""

import gzip
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode
from tests.spark.ingesting import Ingest
from tests.spark.one_session import TEST_CONF
from tests.spark.processes import kill, process, wait_for
from tests.support.pipeline.event_lines import event, text, write_events

FILES = 12


def test_killed_ingest_goes_on_and_each_event_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    job = Ingest(spark, tmp_path)
    # Each file has an event of the one before.
    for number in range(FILES):
        path = write_events(
            job.source / f"{number}.jsonl", [event(seq) for seq in range(number * 10, number * 10 + 11)]
        )
        os.utime(path, (number + 1, number + 1))
    damaged = job.source / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(text(event(seq) for seq in range(1000, 1050)).encode())[:-20])
    os.utime(damaged, (0, 0))
    words = [f"--conf={key}={value}" for key, value in TEST_CONF.items()]
    words += ["--source", str(job.source), "--out", job.common.out, "--checkpoint", str(job.checkpoint)]
    command = [sys.executable, "-m", "pipeline.cli", "ingest", "--master", "local[2]", *words]
    log = tmp_path / "log"
    with process([*command, "--max-files", "1"], log, os.environ) as child:
        wait_for("batch 3:", log, child)
        kill(child)
    assert "batch 12:" not in log.read_text()
    # The damage is said in one line.
    assert sum("corrupted file" in line and damaged.name in line for line in log.read_text().splitlines()) == 1
    assert "Unexpected end of input stream" not in log.read_text()
    (job.source / "bad.jsonl").write_text("no json\n")
    with process([*command, "--fail-if-quarantined", "0"], log, os.environ) as child:
        assert child.wait(250) == ExitCode.QUARANTINED
    assert "Traceback" not in log.read_text()
    found = [seq for seq in job.seqs() if seq < 1000]
    assert found == list(range(FILES * 10 + 1))
