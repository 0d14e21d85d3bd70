from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.cli import main
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.running.session import build_session


def test_session_counts_in_utc(spark: SparkSession) -> None:
    shown = spark.sql("SELECT CAST(timestamp_micros(0) AS STRING) AS t").collect()[0].t
    assert shown == "1970-01-01 00:00:00"


def test_delta_without_its_jars_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_JARS", "nowhere")
    with pytest.raises(PipelineError, match="found no jar in nowhere"):
        build_session("tests", "local[1]")


def test_run_without_any_events_fails_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.jobs.run.at_work", lambda *_: nullcontext(spark))
    assert main(["run", "--out", str(tmp_path)]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"pulsar-proxy-pipeline run: --out {tmp_path}: found no table `events`: run the job that writes it first\n",
    )
