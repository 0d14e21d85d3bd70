"""Ingest from a real topic, killed in mid-stream: every event is in the table once, and what is lost ends it.

Each ingest is a process of its own, as a user starts it: driver, JVM and Python workers, all killed at once.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import ExitCode
from tests.pulsar.admin import Admin
from tests.pulsar.event_topics import EventTopic
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.slow_machine import was_too_slow
from tests.pulsar.standalone import Broker
from tests.spark.jars import delta_jars
from tests.support.jvm import QUICK
from tests.support.patience import patient
from tests.support.pipeline.delta_log import live_files

# JVMs start and stop within.
pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = patient(400.0)
MOST_STARTS = 5
SMALL_AND_QUICK = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": " ".join(QUICK),
}


class Ingest:
    """The job over one topic into one directory."""

    def __init__(self, topic: EventTopic, directory: Path) -> None:
        self.out = directory / "tables"
        self._checkpoint = directory / "checkpoint"
        self._before = 0
        self._log = directory / "ingest.log"
        settings = topic.settings()
        source = f"{settings.service_url}/{topic.name.removeprefix('persistent://')}"
        self._command = [sys.executable, "-m", "pipeline.cli", "ingest", "--source", source]
        self._command += ["--admin-url", settings.admin_url, "--max-entries", "50", "--out", str(self.out)]
        self._command += ["--checkpoint", str(self._checkpoint), "--master", "local[2]"]
        self._command += [word for item in SMALL_AND_QUICK.items() for word in ("--conf", "=".join(item))]

    def start(self) -> psutil.Popen:
        with self._log.open("ab") as log:
            self._before = log.tell()
            return psutil.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PIPELINE_JARS": str(delta_jars())},
            )

    def run(self) -> int:
        """Run it to its end and give its exit code."""
        for _ in range(MOST_STARTS):
            process = self.start()
            try:
                code = int(process.wait(PATIENCE_SECONDS))
            finally:
                kill(process)
            if code != ExitCode.FAILED or not self.was_too_slow():
                break
        return code

    def killed_when(self, reached: Callable[[], bool]) -> None:
        """Run it until `reached`, then kill all of it at once; it must not have ended before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        process = self.start()
        try:
            while not reached():
                if process.poll() is not None and self.was_too_slow():
                    process = self.start()
                elif process.poll() is not None or time.monotonic() > deadline:
                    raise ProcessFailedError(f"ingest: {process.poll()} before it was killed\n{self.log()}")
                time.sleep(0.01)
            assert process.poll() is None, self.log()
        finally:
            kill(process)

    def batches(self, kind: str) -> int:
        """Count what the checkpoint has: `offsets` are batches that were planned, `commits` those that ended."""
        directory = self._checkpoint / kind
        return sum(path.name.isdigit() for path in directory.iterdir()) if directory.exists() else 0

    def was_too_slow(self) -> bool:
        """Tell whether the last start of it ended because the machine was too slow for Spark."""
        return was_too_slow(self._log.read_text(errors="replace")[self._before :])

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def seqs(self) -> list[int]:
        logs = sorted((self.out / "events" / "_delta_log").glob("*.json"))
        files = live_files(line for log in logs for line in log.read_text().splitlines())
        tables = [pq.ParquetFile(self.out / "events" / file).read(["seq"]) for file in files]
        return sorted(seq for table in tables for seq in table["seq"].to_pylist())


def kill(process: psutil.Popen) -> None:
    """End a process and all that it started, at once and without a chance to tidy up."""
    with suppress(psutil.NoSuchProcess):
        # The driver first stands still, so that it starts no other.
        process.suspend()
        family = [*process.children(recursive=True), process]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, timeout=patient(60))
    process.wait()


def test_ingest_that_is_killed_has_every_event_once_and_ends_for_trimmed_ones_with_an_exit_code_of_its_own(
    broker: Broker, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    topic = EventTopic(broker.service_url, admin, namespace, 2)
    topic.send(1500)
    topic.roll(0)
    topic.send(200, batch=1)
    job = Ingest(topic, tmp_path)
    # In the middle of a batch that reads, behind one that has ended: it is planned, and perhaps half written.
    job.killed_when(lambda: job.batches("offsets") > job.batches("commits") > 1)
    assert len(job.seqs()) < topic.sent
    topic.grow(3)
    topic.send(600)
    assert job.run() == ExitCode.OK, job.log()
    assert job.batches("commits") > 3
    assert job.seqs() == list(range(topic.sent))
    topic.send(300)
    topic.roll(0)
    topic.trim(0)
    assert job.run() == ExitCode.DATA_LOSS
    assert "pulsar-proxy-pipeline ingest: " in job.log()
    assert "are gone" in job.log().splitlines()[-1]
