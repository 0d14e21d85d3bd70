"""What jobs are told: one promised wait for all that weigh errors; and what `run` refuses before it starts anything."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pipeline.cli import main
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.write import IngestCounts

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
    # There are events.
    monkeypatch.setattr("pipeline.jobs.run.read_days", lambda *_: None)
    return settings


@pytest.mark.parametrize("job", WORK)
def test_one_promise_holds_for_all_that_weigh_errors(job: str, told: dict[str, Any], tmp_path: Path) -> None:
    assert main([job, "--out", str(tmp_path), "--p99-wait-ms", "1234"]) == ExitCode.OK
    promised = {"whatif": lambda given: given.promised_us, "advise": lambda given: given.target.p99_wait_us}
    weighing = [name for name in WORK[job] if name in promised]
    assert [promised[name](told[name]) for name in weighing] == [1_234_000] * len(weighing)


def test_run_tries_its_load_beside_those_of_the_grid(told: dict[str, Any], tmp_path: Path) -> None:
    assert main(["run", "--out", str(tmp_path), "--load", "3", "--heap-mb", "8,16"]) == ExitCode.OK
    assert told["advise"].target.load == 3
    assert told["whatif"].grid.loads == (1, 2, 3)
    assert told["whatif"].grid.values == {"heap_bytes": (8 * 2**20, 16 * 2**20)}


@pytest.mark.parametrize(("given", "asked"), [([], None), (["--cluster", "east"], "east")])
def test_drift_is_that_of_the_cluster_or_of_all(
    given: list[str], asked: str | None, told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drift(_: object, __: object, cluster: str | None) -> CollectorRegistry:
        told["drift"] = cluster
        return CollectorRegistry()

    monkeypatch.setattr("pipeline.jobs.run.drift_of", drift)
    file = tmp_path / "drift.prom"
    assert main(["run", "--out", str(tmp_path), "--metrics-file", str(file), *given]) == ExitCode.OK
    assert told["drift"] == asked
    assert file.exists()


def test_nothing_is_made_of_events_too_many_of_which_are_none(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def follow(_: object, settings: IngestSettings, *__: object) -> None:
        IngestCounts(100, 98, 0, {"malformed": 2}).refuse_more_than(settings.most_quarantined)

    monkeypatch.setattr("pipeline.jobs.run.follow", follow)
    words = ["run", "--out", str(tmp_path), "--source", str(tmp_path), "--fail-if-quarantined"]
    assert main([*words, "2"]) == ExitCode.OK
    told.clear()
    assert main([*words, "1.9"]) == ExitCode.QUARANTINED
    assert told == {}
    assert "ingest: failed" in capsys.readouterr().out


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
        (["--fail-if-quarantined", "1"], "--fail-if-quarantined: got no --source"),
        (["--source", "pulsar://h:6650/t/n/x"], "--source: got a topic, expected DIR: read it with `ingest`"),
        (["--load", "0"], "--load: got 0, expected 1 or more"),
        (["--pushgateway", "gateway/"], "--pushgateway: got 'gateway/'"),
    ],
)
def test_what_makes_no_sense_is_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*HERE, *given]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_place_that_only_a_write_shows_to_be_none_is_one_line(
    session: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--out", "/proc/tables"]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pulsar-proxy-pipeline usage: --out: got /proc/tables, expected a directory to write to: ")
    assert session == []


def test_place_where_no_tables_can_be_is_one_line(
    session: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["usage", "--out", str(file / "tables")]) == ExitCode.USAGE
    # Whoever is root may write everywhere.
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main(["usage", "--out", str(tmp_path / "tables")]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"pulsar-proxy-pipeline usage: --out: got {file}/tables, expected a directory: {file} is none",
        f"pulsar-proxy-pipeline usage: --out: got {tmp_path}/tables, expected a directory to write to: {tmp_path} is"
        " read-only here",
    ]
    assert session == []
