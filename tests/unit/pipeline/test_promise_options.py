"""The wait that is promised, from the words of a job to the work it calls: one figure for all that weigh errors."""

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
    "report": ("write_report",),
    "run": ("make_usage", "find_storms", "whatif", "advise", "write_report"),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have jobs do no work, and give the settings that each work was called with, by its name."""
    settings: dict[str, Any] = {}

    def work(name: str) -> Any:
        def take(_: object, given: object, *__: object) -> SimpleNamespace:
            settings[name] = given
            return SUMMARY

        return take

    for job, names in WORK.items():
        monkeypatch.setattr("pipeline.running.progress.open_session", lambda *_: SimpleNamespace(stop=lambda: None))
        for name in names:
            monkeypatch.setattr(f"pipeline.jobs.{job}.{name}", work(name))
    return settings


def test_whatif_weighs_by_the_promise_that_it_was_given(told: dict[str, Any], tmp_path: Path) -> None:
    assert main(["whatif", "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.OK
    assert told["whatif"].promised_us == 1_234_000
    assert main(["whatif", "--out", str(tmp_path)]) == ExitCode.OK
    assert told["whatif"].promised_us == PROMISED_MS * 1000


def test_advise_holds_the_promise_that_it_was_given(told: dict[str, Any], tmp_path: Path) -> None:
    assert main(["advise", "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.OK
    assert told["advise"].target.p99_wait_us == 1_234_000


def test_report_goes_by_the_advice_unless_it_was_given_a_promise(told: dict[str, Any], tmp_path: Path) -> None:
    assert main(["report", "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.OK
    assert told["write_report"].promised_us == 1_234_000
    assert main(["report", "--out", str(tmp_path)]) == ExitCode.OK
    assert told["write_report"].promised_us is None


def test_run_leaves_tables_of_usage_to_the_stream_that_adds_to_them(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise StreamOwnsError("got a table `usage` that a stream adds to")

    monkeypatch.setattr("pipeline.jobs.run.make_usage", refuse)
    assert main(["run", "--out", str(tmp_path)]) == ExitCode.OK
    assert "usage: left to the stream that adds to its tables" in capsys.readouterr().out
    assert "write_report" in told


def test_run_gives_one_promise_to_all_its_jobs(told: dict[str, Any], tmp_path: Path) -> None:
    assert main(["run", "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.OK
    assert told["whatif"].promised_us == 1_234_000
    assert told["advise"].target.p99_wait_us == 1_234_000
    assert told["write_report"].promised_us == 1_234_000
    assert told["write_report"].no_advice == ""


def test_run_tells_the_report_why_there_is_no_advice(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PipelineError("no advice: the replay is off", ExitCode.CALIBRATION)

    monkeypatch.setattr("pipeline.jobs.run.advise", refuse)
    assert main(["run", "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.CALIBRATION
    assert told["write_report"].no_advice == "no advice: the replay is off"
    assert told["write_report"].promised_us == 1_234_000
