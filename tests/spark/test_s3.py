"""Bad input where it is on an object store: one line in each case, and nothing taken for read or written."""

import gzip
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.cli import main
from pipeline.core.errors import ExitCode
from tests.spark.object_store import object_store


def test_nobody_writes_to_s3_without_saying_who_keeps_writers_apart(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.running.session.build_session", lambda *_: spark)
    # It serves other tests, too.
    monkeypatch.setattr(spark, "stop", lambda: None)
    assert main(["compact", "--out", "s3a://events/tables"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "pulsar-proxy-pipeline compact: --out s3a://events/tables: got no spark.delta.logStore.s3a.impl, expected"
        " io.delta.storage.S3DynamoDBLogStore, by which several jobs may write, or"
        " io.delta.storage.S3SingleDriverLogStore where one job at a time does (--conf)\n"
    )


def test_a_damaged_file_on_s3_is_named_and_not_taken_for_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with object_store(tmp_path / "store.log") as bucket:
        mine = spark.newSession()
        for key, value in bucket.conf.items():
            mine.conf.set(key.removeprefix("spark.hadoop."), value)
        monkeypatch.setattr("pipeline.jobs.run.at_work", lambda *_: nullcontext(mine))
        bucket.put("in/a.jsonl.gz", gzip.compress(os.urandom(9000).hex().encode())[:-2000])
        words = ["run", "--source", bucket.uri("in"), "--out", str(tmp_path / "tables")]
        assert main(words) == ExitCode.FAILED
    named = f"pulsar-proxy-pipeline run: {bucket.uri('in/a.jsonl.gz')} cannot be read whole: run again"
    assert capsys.readouterr().err.splitlines()[-1].startswith(named)
