"""The demo of the pipeline without its storm: what it starts, what it deletes, how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.demo import show
from pipeline.demo.show import ACTS, KEYS
from proxy.config.config import Config


def test_every_key_that_the_demo_sets_exists() -> None:
    assert set(KEYS) <= {key.name for key in Config.keys()}  # noqa: SIM118


def test_a_broken_promise_of_the_proxy_is_an_error_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(words: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(words, 1, "a line\nBROKEN: 3 requests were lost, expected 0\n", "")

    monkeypatch.setattr(subprocess, "run", ended)
    with pytest.raises(PipelineError, match="ended with code 1:\na line\nBROKEN: 3 requests were lost") as caught:
        show.record(ACTS[0], tmp_path)
    assert caught.value.code == ExitCode.FAILED


def test_a_directory_that_no_demo_has_made_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "mine").touch()
    assert show.main(["--dir", str(tmp_path)]) == ExitCode.USAGE
    assert "got a directory that no demo has made" in capsys.readouterr().err
    assert (tmp_path / "events" / "mine").exists()


def test_a_second_demo_begins_anew_and_runs_every_job_on_what_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[list[str]] = []

    def recorded(act: object, events: Path) -> str:
        (events / f"events-{len(list(events.iterdir()))}.jsonl.gz").touch()
        return "The promise held"

    def jobs(words: list[str]) -> int:
        told.append(words)
        return ExitCode.CALIBRATION

    monkeypatch.setattr(show, "record", recorded)
    monkeypatch.setattr(show, "start_spark", lambda: None)
    monkeypatch.setattr("pipeline.cli.main", jobs)
    for _ in range(2):
        assert show.main(["--dir", str(tmp_path / "demo")]) == ExitCode.CALIBRATION
    recordings = sum(act.times for act in ACTS)
    assert len(list((tmp_path / "demo" / "events").iterdir())) == recordings
    assert told[1][:3] == ["run", "--source", str(tmp_path / "demo" / "events")]
    assert f"{recordings} files in" in capsys.readouterr().out


def test_without_the_libraries_of_the_jobs_it_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def recorded(_: object, events: Path) -> str:
        (events / "events.jsonl.gz").touch()
        return "The promise held"

    monkeypatch.setattr(show, "record", recorded)
    monkeypatch.delitem(sys.modules, "pipeline.jobs.run", raising=False)
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    assert show.main(["--dir", str(tmp_path / "demo")]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "pulsar-proxy-pipeline run: pyspark is not installed: this job needs the extra `pipeline`\n"
    )
