"""The jobs where tables are on an object store: on a cluster, killed in the middle, and two at once."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.pipeline.generate.__main__ import main as generate
from tests.spark.cluster import CONF, shipped, standalone
from tests.spark.jars import MissingJarsError, delta_jars
from tests.spark.object_store import ObjectStore, object_store
from tests.spark.one_session import TEST_CONF
from tests.spark.processes import kill, process, wait_for
from tests.support.patience import patient
from tests.support.pipeline.event_lines import event, text

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 1_000
# JVMs of their own, and Delta commits slowly: minutes on a machine that does much else.
SECONDS = 850


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[ObjectStore]:
    with object_store(tmp_path / "store.log") as running:
        yield running


@pytest.fixture
def environ() -> dict[str, str]:
    try:
        jars = delta_jars()
    except MissingJarsError as error:
        pytest.fail(str(error))
    return {**os.environ, "PIPELINE_JARS": str(jars), "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}


class Submitted:
    """Jobs that spark-submit runs on a cluster, whose executors have our packages only because these are shipped."""

    def __init__(self, bucket: ObjectStore, master: str, directory: Path, environ: Mapping[str, str]) -> None:
        self._tables = ["--out", bucket.uri("tables"), "--format", "delta"]
        packages, python = shipped(directory)
        jars = ",".join(map(str, sorted(Path(environ["PIPELINE_JARS"]).glob("*.jar"))))
        settings = [word for item in (TEST_CONF | bucket.conf | CONF).items() for word in ("--conf", "=".join(item))]
        self._submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", master, *settings]
        self._submit += ["--jars", jars, "--py-files", str(packages)]
        here = {key: value for key, value in environ.items() if key != "PYTHONPATH"}
        self.environ = here | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}

    def command(self, *jobs: Sequence[str]) -> list[str]:
        """Give the command for jobs, each a name and its words, one after the other."""
        if len(jobs) == 1:
            (name, *words), main = jobs[0], ROOT / "deploy" / "pipeline" / "main.py"
            return [*self._submit, str(main), name, *self._tables, *words]
        turns = [" ".join([name, *self._tables, *words]) for name, *words in jobs]
        return [*self._submit, str(Path(__file__).with_name("in_turn.py")), *turns]


def output(words: list[str], log: Path, environ: dict[str, str]) -> str:
    with process(words, log, environ) as child:
        assert child.wait(patient(SECONDS)) == 0, log.read_text(errors="replace")[-3000:]
    return log.read_text(errors="replace")


@pytest.mark.timeout(3600)
def test_every_job_runs_on_a_cluster_and_survives_a_kill(
    bucket: ObjectStore, environ: dict[str, str], tmp_path: Path
) -> None:
    words = ["--events", str(EVENTS), "--proxies", "4", "--clients", "200", "--rate", "50", "--as", "files"]
    assert generate([*words, "--out", str(tmp_path / "in")]) == 0
    files = sorted((tmp_path / "in").iterdir())
    # The end of the first is cut off at first, so that Spark reads no line of it: Python does, out of the store.
    bucket.put(f"in/{files[0].name}", files[0].read_bytes()[:-10])
    for path in files[1:]:
        bucket.put(f"in/{path.name}", path.read_bytes())
    source = ["--source", bucket.uri("in")]
    with standalone(tmp_path) as master:
        submitted = Submitted(bucket, master, tmp_path, environ)
        log = tmp_path / "killed.log"
        stream = submitted.command(["ingest", *source, "--trigger", "1ms", "--max-files", "1"])
        with process(stream, log, submitted.environ) as child:
            wait_for("batch 1:", log, child)
            kill(child)
        assert ", 1 truncated" in log.read_text()
        bucket.put(f"in/{files[0].name}", files[0].read_bytes())
        page, conf = tmp_path / "report.html", tmp_path / "advice.conf"
        report = ["--to", str(page), "--conf-file", str(conf)]
        small = ["--load", "1", "--heap-mb", "64,256", "--direct-mb", "64,256", "--p99-wait-ms", "60000"]
        words = submitted.command(["compact"], ["run", *source, *report, *small])
        said = output(words, tmp_path / "run.log", submitted.environ)
        counts = re.search(r"(\d+) read: (\d+) kept, (\d+) duplicates", said)
        assert counts is not None, said
        read, kept, duplicates = map(int, counts.groups())
        assert (read, kept + duplicates) == (EVENTS, EVENTS)
        assert 0 < duplicates < EVENTS, "it was to be killed in mid-stream"
        # Each of them once, also those that the compaction has moved.
        usage = re.search(r"usage: (\d+) requests, \d+ refused, (\d+) watch frames", said)
        assert usage is not None, said
        assert sum(map(int, usage.groups())) == EVENTS
        assert page.stat().st_size > 100_000
        assert "maxTopicListInFlightHeapMemSizeMB" in conf.read_text()
        before, after = map(int, re.findall(r"compact: (\d+) files before, (\d+) after", said)[0])
        assert after < before


def rows_by_log(bucket: ObjectStore, table: str) -> int:
    """Count the rows of a table as the log of Delta does, without a JVM."""
    files: dict[str, int] = {}
    commits = [name for name in bucket.names(f"{table}/_delta_log/") if name.endswith(".json")]
    for action in (json.loads(line) for name in sorted(commits) for line in bucket.get(name).splitlines()):
        if "add" in action:
            files[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
        elif "remove" in action:
            files.pop(action["remove"]["path"])
    return sum(files.values())


@pytest.mark.timeout(900)
def test_two_writers_go_one_at_a_time(bucket: ObjectStore, environ: dict[str, str]) -> None:
    for number in range(2):
        bucket.put(f"in/{number}.jsonl", text(event(number * 50 + seq) for seq in range(50)).encode())
    words = [sys.executable, "-m", "tests.spark.two_writers_scenario", str(bucket.port)]
    done = subprocess.run(
        words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=patient(SECONDS), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert [read for read, _ in seen["ingested at once"]] == [100, 100]
    assert sum(kept for _, kept in seen["ingested at once"]) == 100
    assert rows_by_log(bucket, "ingested/events") == 100
    assert "pulsar-proxy-pipeline tests, process " in seen["refused"]
    assert seen["created"] == [True, False, "first", ["a"]]
    assert "expected conditional writes" in seen["refused without conditional writes"]
    # Why there is a lease: the log of Delta is written so, and one of two commits would be gone without a word.
    assert seen["both of a plain race"] == "written, written"
