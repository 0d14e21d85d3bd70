"""What is wrong with options of `advise` and `report` is said before anything runs: here is no Spark to run it."""

import argparse
from pathlib import Path

import pytest

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.jobs.advise import AdviseSettings, add_arguments, settings_of
from pipeline.report.write import ReportSettings


def settings(*words: str) -> AdviseSettings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return settings_of(parser.parse_args(["--out", "out", *words]))


@pytest.mark.parametrize(
    "words",
    [
        ("--headroom", "-1"),
        ("--headroom", "nan"),
        ("--max-error", "nan"),
        ("--max-imputed", "2"),
        ("--min-requests", "0"),
        ("--p99-wait-ms", "nan"),
        ("--conf-file", "no-such-directory/advice.conf"),
    ],
)
def test_option_that_makes_no_sense_is_refused_at_once(words: tuple[str, str]) -> None:
    with pytest.raises(PipelineError, match=f"^{words[0]}: got") as caught:
        settings(*words)
    assert caught.value.code == ExitCode.USAGE


def test_no_other_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "proxy.conf"
    file.write_text("servicePort=6650\n")
    with pytest.raises(PipelineError, match="which advise has not written"):
        settings("--conf-file", str(file))
    file.write_text("# Target: no refusals\n")
    assert settings("--conf-file", str(file)).conf_path == file


def test_page_that_is_a_directory_is_refused_before_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="--to: got the directory"):
        ReportSettings(CommonSettings("out", None, {}), tmp_path)
