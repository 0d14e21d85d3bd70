"""Ingest as a process: killed in mid-stream, and on executors that are not the driver."""

import os
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import TEST_CONF
from tests.spark.ingesting import Ingest
from tests.spark.processes import kill, process, wait_for
from tests.support.pipeline.event_lines import event, write_events

ROOT = Path(__file__).resolve().parents[2]
FILES = 8
EACH = 25
# JVMs of their own: seconds, but minutes on a machine that does much else.
SECONDS = 850


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


@pytest.mark.timeout(900)
def test_executors_work_with_the_code_that_is_shipped(spark: SparkSession, tmp_path: Path) -> None:
    """Runs spark-submit on two executors whose Python knows our packages only from `--py-files`."""
    job = Ingest(spark, tmp_path)
    damaged = write_events(job.source / "a.jsonl.gz", (event(seq) for seq in range(50)))
    whole = write_events(job.source / "b.jsonl.gz", (event(seq) for seq in range(50, 60)))
    # The lines of a damaged file are read by Python, in the executors.
    damaged.write_bytes(whole.read_bytes() + damaged.read_bytes()[:-10])
    shipped = tmp_path / "ours.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        for path in (path for package in ("pipeline", "eventlog") for path in (ROOT / package).rglob("*.py")):
            archive.write(path, path.relative_to(ROOT))
    submit = ["--master", "local-cluster[2,1,1024]", "--py-files", str(shipped), "--driver-memory", "1g"]
    quick = TEST_CONF["spark.driver.extraJavaOptions"]
    submit += ["--driver-java-options", quick, "--conf", f"spark.executor.extraJavaOptions={quick}"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.task.maxFailures=1"]
    command = [str(Path(sys.executable).with_name("spark-submit")), *submit]
    command += [str(ROOT / "deploy" / "pipeline" / "main.py"), *options(job)]
    log = tmp_path / "cluster.log"
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ |= {"PYSPARK_PYTHON": str(python_without_ours(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    with process(command, log, environ) as child:
        assert child.wait(SECONDS) == 0, log.read_text(errors="replace")[-3000:]
    assert set(job.seqs()) >= set(range(50, 60))
    assert [reason for reason, _, _ in job.quarantine()] == ["truncated"]


def python_without_ours(directory: Path) -> Path:
    """Make a Python that has the libraries of this one but reads no .pth file, as that of an editable install is."""
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return script
