"""The jobs where tables are on an object store: killed one after the other, and on a cluster."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from eventlog.schema import FIELDS, SCHEMA_VERSION
from pipeline.core.tables import TABLES
from tests.spark.cluster import CONF, shipped, standalone
from tests.spark.jars import MissingJarsError, delta_jars
from tests.spark.object_store import ObjectStore, object_store
from tests.spark.one_session import TEST_CONF
from tests.spark.processes import kill, process, wait_for
from tests.support.patience import patient
from tests.support.pipeline.delta_log import live_files
from tests.support.pipeline.replay_events import requests, storm

ROOT = Path(__file__).resolve().parents[2]
JOBS = ("ingest", "usage", "storms", "whatif", "report", "advise")
# Jobs that are killed outside of `run`: the next job makes their tables, whatever they have left.
ALONE = ("storms", "whatif", "advise")
TARGET = ("--p99-wait-ms", "60000")
ONE_WRITER = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"}
# What a run has beside what it makes of events: when it was, and that it was.
OF_THE_RUN = {"ingested_at", "seen_at", "made_at"}
HISTORIES = {"calibration_history", "advice_history"}
# JVMs of their own, and Delta commits slowly: minutes on a machine that does much else.
SECONDS = 600


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


def conf_words(*some: Mapping[str, str]) -> list[str]:
    return [word for each in some for item in each.items() for word in ("--conf", "=".join(item))]


def here(bucket: ObjectStore, job: str, *words: str) -> list[str]:
    """Give the command of a job in a Spark of its own."""
    told = ["--master", "local[2]", *conf_words(TEST_CONF, bucket.conf)]
    return [sys.executable, "-m", "pipeline.cli", job, *told, *words]


def on_a_cluster(bucket: ObjectStore, master: str, directory: Path, jars: str, *words: str) -> list[str]:
    """Give the command of a job for executors that have our packages only because these are shipped."""
    packages, python = shipped(directory)
    told = conf_words(TEST_CONF, bucket.conf, ONE_WRITER, CONF, {"spark.pyspark.python": str(python)})
    found = ",".join(map(str, sorted(Path(jars).glob("*.jar"))))
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", master, *told, "--jars", found]
    return [*submit, "--py-files", str(packages), str(ROOT / "deploy" / "pipeline" / "main.py"), *words]


def run_words(bucket: ObjectStore, tables: str, directory: Path) -> list[str]:
    """Give the words of `run`, with few scenarios and a target that is easily held."""
    places = ["--source", bucket.uri("in"), "--out", bucket.uri(tables)]
    files = ["--to", str(directory / f"{tables}.html"), "--conf-file", str(directory / f"{tables}.conf")]
    return [*places, *files, "--heap-mb", "4,64", "--direct-mb", "4,64", *TARGET]


def completed(words: list[str], log: Path, environ: Mapping[str, str]) -> None:
    with process(words, log, environ) as child:
        assert child.wait(patient(SECONDS)) == 0, log.read_text(errors="replace")[-3000:]


def wait_for_a_file(bucket: ObjectStore, table: str, child: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a job has written something."""
    before = set(bucket.names(f"{table}/"))
    while not set(bucket.names(f"{table}/")) - before:
        assert child.poll() is None, log.read_text(errors="replace")[-3000:]
        time.sleep(0.05)


def rows(bucket: ObjectStore, place: str) -> dict[str, list[str]]:
    """Give the rows of every table of a place, sorted, without what differs from run to run."""
    found = {}
    for table in TABLES.values():
        where = f"{place}/{table.name}"
        logs = [name for name in sorted(bucket.names(f"{where}/_delta_log/")) if name.endswith(".json")]
        if table.name in HISTORIES or not logs:
            continue
        files = live_files(line for name in logs for line in bucket.get(name).decode().splitlines())
        lines = []
        for file, of_partition in files.items():
            part = pq.read_table(BytesIO(bucket.get(f"{where}/{unquote(file)}")))
            told = part.drop_columns([name for name in part.column_names if name in OF_THE_RUN])
            lines += [str(of_partition | row) for row in told.to_pylist()]
        found[table.name] = sorted(lines)
    return found


@pytest.mark.timeout(3600)
def test_tables_are_the_same_after_a_kill_of_each_job(
    bucket: ObjectStore, environ: dict[str, str], tmp_path: Path
) -> None:
    names = [field.name for field in FIELDS]
    lines = [dict(zip(names, row, strict=True)) for row in requests(*storm(2, 400))]
    for number in range(2):
        part = [json.dumps(line | {"schema_version": SCHEMA_VERSION}) + "\n" for line in lines[number::2]]
        bucket.put(f"in/{number}.jsonl", "".join(part).encode())
    told = ["--out", bucket.uri("tables"), *conf_words(ONE_WRITER)]
    advice = ["--conf-file", str(tmp_path / "tables.conf"), *TARGET]
    run = here(bucket, "run", *run_words(bucket, "tables", tmp_path), *conf_words(ONE_WRITER))
    for job in JOBS:
        log = tmp_path / f"{job}.log"
        alone = here(bucket, job, *told, *(advice if job == "advise" else []))
        with process(alone if job in ALONE else run, log, environ) as child:
            if job not in ALONE:
                wait_for(f"] {job} ...", log, child)
            if job != "report":
                wait_for_a_file(bucket, "tables", child, log)
            kill(child)
    completed(here(bucket, "advise", *told, *advice), tmp_path / "last.log", environ)

    with standalone(tmp_path) as master:
        jars, undisturbed = environ["PIPELINE_JARS"], ["run", *run_words(bucket, "undisturbed", tmp_path)]
        submitted = {key: value for key, value in environ.items() if key != "PYTHONPATH"}
        command = on_a_cluster(bucket, master, tmp_path, jars, *undisturbed)
        completed(command, tmp_path / "cluster.log", submitted | {"PYSPARK_DRIVER_PYTHON": sys.executable})

    expected = rows(bucket, "undisturbed")
    assert {"events", "usage", "storms", "whatif", "advice"} <= set(expected)
    assert len(expected["events"]) == len(lines)
    assert rows(bucket, "tables") == expected
    assert (tmp_path / "tables.conf").read_text() == (tmp_path / "undisturbed.conf").read_text()
