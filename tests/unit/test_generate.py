"""Generated files: what counts as out of date, and where a generated part goes."""

from pathlib import Path

import pytest

from benchmarks.ladder.results import load
from benchmarks.ladder.scenarios import SCENARIOS
from scripts.generate import stale, write
from scripts.generate_evidence import ladder, unmeasured


def test_file_that_differs_or_is_missing_is_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.generate.ROOT", tmp_path)
    files = {tmp_path / "same": "a\n", tmp_path / "new/missing": "b\n", tmp_path / "other": "c\n"}
    (tmp_path / "same").write_text("a\n")
    (tmp_path / "other").write_text("changed by hand\n")
    assert stale(files) == ["new/missing", "other"]
    write(files)
    assert stale(files) == []


def test_what_was_asked_and_has_no_result_is_said_to_be_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        if name == "idle":
            raise FileNotFoundError(name)
        return load(name)

    monkeypatch.setattr("scripts.generate_evidence.load", without)
    assert "| a connection at rest | - | - | | | not measured |" in ladder()
    whole = load("lists")
    asked = {*unmeasured(SCENARIOS["lists"], {**whole, "ratios": []})}
    missing = asked - {*unmeasured(SCENARIOS["lists"], whole)}
    measured = [ratio for ratio in whole["ratios"] if not ratio["validity"] and not ratio["note"]]
    assert len(missing) == sum(ratio["required"] is not None for ratio in measured)
