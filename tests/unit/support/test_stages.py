from pathlib import Path

import pytest

from tests.support import stages
from tests.support.stages import SECONDS, begins, main, pace, took

NAMES = list(SECONDS)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "SECONDS", {"first": 60, "second": 120, "third": 600})


def test_first_stage_names_the_whole_time_of_an_idle_machine() -> None:
    assert begins("first", {}, 0.0) == "stage 1 of 3, first: about 13 minutes left on an idle machine"


def test_later_stage_names_what_is_left_also_at_the_pace_so_far() -> None:
    said = begins("second", {"first": 1000.0}, 1180.0)
    assert said == "stage 2 of 3, second: about 12 minutes left on an idle machine, 36 minutes at the pace of this run"


def test_pace_is_of_all_stages_that_ended() -> None:
    assert pace("third", {"first": 0.0, "second": 60.0}, 360.0) == 2.0


def test_last_minute_is_one_minute() -> None:
    assert begins("second", {"first": 0.0}, 0.5).endswith(" machine, 1 minute at the pace of this run")


def test_report_names_each_stage_of_the_run() -> None:
    assert took({"first": 10.0, "second": 15.0}, 45.0) == "took: first 5 s, second 30 s"


def test_command_remembers_a_run_until_the_next_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cache" / "stages.json"
    assert main(["first"], file) == main(["second"], file) == main(["--report"], file) == 0
    assert main(["--forget"], file) == main(["second"], file) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("stage 2 of 3, second: ")
    assert "at the pace of this run" in lines[1]
    assert lines[2].startswith("took: first 0 s, second ")
    assert lines[3] == "stage 2 of 3, second: about 12 minutes left on an idle machine"


def test_stages_of_the_makefile_are_those_of_the_table() -> None:
    makefile = (Path(__file__).resolve().parents[3] / "Makefile").read_text()
    recipe = makefile.partition("\ntest:")[2].partition("\n\n")[0]
    loop = recipe.partition("for stage in ")[2].partition(";")[0].split()
    assert [*loop, "spark and brokers"] == NAMES
    assert 'tests.support.stages "spark and brokers"' in recipe
