"""The job `report`: a page, or its rankings as JSON."""

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.core.errors import ExitCode
from tests.support.pipeline.report_frames import facts


@pytest.mark.usefixtures("session")
def test_rankings_are_printed_as_json_and_no_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.jobs.report.facts_of", lambda *_: facts())
    assert main(["report", "--out", str(tmp_path), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["cluster"] == "east"
    assert list(tmp_path.iterdir()) == []


def test_a_page_needs_a_disk_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--out", "s3a://bucket/tables"]) == ExitCode.USAGE
    assert "--to: got none, expected a file" in capsys.readouterr().err
    assert main(["report", "--out", str(tmp_path), "--to", str(tmp_path)]) == ExitCode.USAGE
    assert "--to: got the directory" in capsys.readouterr().err


def test_a_file_that_advise_has_not_written_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "proxy.conf"
    file.write_text("servicePort=6650\n")
    assert main(["report", "--out", str(tmp_path), "--conf-file", str(file)]) == ExitCode.USAGE
    assert f"--conf-file: got {file}, which advise has not written, expected" in capsys.readouterr().err
