"""Generated files: what counts as out of date, and where a generated part goes."""

from pathlib import Path

import pytest

from scripts.generate import stale, write


def test_file_that_differs_or_is_missing_is_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.generate.ROOT", tmp_path)
    files = {tmp_path / "same": "a\n", tmp_path / "new/missing": "b\n", tmp_path / "other": "c\n"}
    (tmp_path / "same").write_text("a\n")
    (tmp_path / "other").write_text("changed by hand\n")
    assert stale(files) == ["new/missing", "other"]
    write(files)
    assert stale(files) == []
