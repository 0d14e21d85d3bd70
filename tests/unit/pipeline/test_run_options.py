"""What `run` refuses before it starts anything: an hour of jobs must not end without a place for what they found."""

import pytest

from pipeline.cli import main
from pipeline.errors import ExitCode

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
