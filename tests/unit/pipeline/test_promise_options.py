"""What jobs are told: one promised wait for all that weigh errors; and what `run` refuses before it starts anything."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.core.calibration import PROMISED_MS
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.usage.tables import StreamOwnsError

SUMMARY = SimpleNamespace(
    scenarios=1,
    calibration=SimpleNamespace(error=0.1),
    advice=SimpleNamespace(final=SimpleNamespace(proxies=1, limits=SimpleNamespace(heap_bytes=1, direct_bytes=1))),
    conf_path=None,
)
WORK = {
    "whatif": ("whatif",),
    "advise": ("advise",),
    "run": ("make_usage", "find_storms", "whatif", "advise", "write_report"),
}


@pytest.fixture
def told(session: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have jobs do no work, and give the settings that each work was called with, by its name."""
    settings: dict[str, Any] = {}

    def work(name: str) -> Any:
        def take(_: object, given: object, *__: object) -> SimpleNamespace:
            settings[name] = given
            return SUMMARY

        return take

    for job, names in WORK.items():
        for name in names:
            monkeypatch.setattr(f"pipeline.jobs.{job}.{name}", work(name))
    return settings


@pytest.mark.parametrize("job", WORK)
def test_one_promise_holds_for_all_that_weigh_errors(job: str, told: dict[str, Any], tmp_path: Path) -> None:
    assert main([job, "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.OK
    promised = {
        "whatif": lambda given: given.promised_us,
        "advise": lambda given: given.target.p99_wait_us,
        "write_report": lambda given: given.target_us,
    }
    weighing = [name for name in WORK[job] if name in promised]
    assert [promised[name](told[name]) for name in weighing] == [1_234_000] * len(weighing)


def test_run_leaves_tables_of_usage_to_the_stream_that_adds_to_them(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise StreamOwnsError("got a table `usage` that a stream adds to")

    monkeypatch.setattr("pipeline.jobs.run.make_usage", refuse)
    assert main(["run", "--out", str(tmp_path)]) == ExitCode.OK
    assert "usage: left to the stream that adds to its tables" in capsys.readouterr().out
    assert "write_report" in told


def test_run_tells_the_report_why_there_is_no_advice(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PipelineError("no advice: the replay is off", ExitCode.CALIBRATION)

    monkeypatch.setattr("pipeline.jobs.run.advise", refuse)
    assert main(["run", "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.CALIBRATION
    assert told["write_report"].no_advice == "no advice: the replay is off"
    assert told["write_report"].target_us == 1_234_000


# --- what `run` refuses before it starts anything

HERE = ["run", "--out", "tables"]
ELSEWHERE = ["run", "--out", "s3a://bucket/tables"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "--to: got none, expected a file"),
        (["--to", "page.html"], "--conf-file: got none, expected a file: --out s3a://bucket/tables"),
    ],
)
def test_tables_elsewhere_need_files_here(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ELSEWHERE, *given]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--admin-url", "http://a:8080", "--auth", "token"],
            "--admin-url, --auth: there is no --source, and these say how one is read: expected none of them",
        ),
        (["--on-data-loss", "warn"], "--on-data-loss: there is no --source"),
        (["--max-files", "5"], "--max-files: there is no --source"),
        (["--source", "events", "--start", "latest"], "--start: --source names files, and these are for topics"),
    ],
)
def test_options_of_a_topic_that_is_not_there_are_refused(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*HERE, *given]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
