"""What `usage` and `storms` refuse before Spark is started or anything is written."""

from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.core.errors import ExitCode

STORM_RULE = "expected numbers of at least 1, 1, 0 and 1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["usage", "--top", "0"], "--top: got 0, expected at least 1"),
        (["usage", "--window", "7m"], "--window: got '7m', expected a part of a day"),
        *((["storms", *words], STORM_RULE) for words in (["--times", "nan"], ["--floor", "0"])),
        *((["storms", word], STORM_RULE) for word in ("--gap=-1", "--top=0")),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    words: list[str], said: str, tmp_path: Path, session: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path)]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert (list(tmp_path.iterdir()), session) == ([], [])
