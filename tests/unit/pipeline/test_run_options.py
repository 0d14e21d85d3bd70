"""What `run` refuses before it starts anything: an hour of jobs must not end without a place for what they found."""

import pytest

from pipeline.cli import main
from pipeline.core.errors import ExitCode

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


@pytest.mark.parametrize("job", ["run", "whatif"])
def test_marks_that_make_no_sense_are_refused(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([job, "--out", "tables", "--overload-high", "85"]) == ExitCode.USAGE
    assert "--overload-high: got '85', expected fractions" in capsys.readouterr().err


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
