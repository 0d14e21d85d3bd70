"""A change of the tables is wholly there or not at all, wherever a process is cut off."""

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.changes import Change, Directory, Staging
from pipeline.errors import ExitCode, PipelineError


class CutOffError(Exception):
    """Stands for the end of the process."""


def put(directory: Directory, name: str) -> tuple[Staging, tuple[str, str]]:
    """Stage a file that is to become `name`."""
    staging = directory.stage("test")
    staged = staging.path / "rows" / "part.parquet"
    staged.parent.mkdir()
    staged.write_text(name)
    return staging, (str(staged.relative_to(directory.root)), name)


def add(directory: Directory, *names: str) -> None:
    for name in names:
        staging, move = put(directory, name)
        with directory.exclusive() as writer:
            writer.make(Change(f"add-{Path(name).name}", (move,)))
        staging.discard()


def listed(directory: Directory, table: str = "t") -> list[str]:
    return [str(path.relative_to(directory.root)) for path in directory.files(table)]


def cut_off_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Callable[[], int]:
    """Let so many changes of the file system happen, and none after; gives what counts them."""
    done = 0

    def stepping(original: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            nonlocal done
            if done >= steps:
                raise CutOffError
            done += 1
            return original(*arguments, **named)

        return step

    for name in ("replace", "unlink", "write_text", "mkdir"):
        monkeypatch.setattr(Path, name, stepping(getattr(Path, name)))
    monkeypatch.setattr(shutil, "rmtree", stepping(shutil.rmtree))
    return lambda: done


def test_files_are_added_and_replaced_in_one_change(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    add(directory, "t/date=1/a.parquet", "t/date=1/b.parquet")
    staging, move = put(directory, "t/date=1/c.parquet")
    with directory.exclusive() as writer:
        writer.make(Change("merge", (move,), ("t/date=1/a.parquet", "t/date=1/b.parquet"), {"stream": 7}))
        assert writer.note("stream") == 7
        assert writer.note("other") is None
    staging.discard()
    assert listed(directory) == ["t/date=1/c.parquet"]
    assert not staging.path.exists()


@pytest.mark.parametrize("steps", range(14))
def test_cut_off_anywhere_the_change_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    directory = Directory(tmp_path)
    add(directory, "t/date=1/a.parquet", "t/date=1/b.parquet")
    before = ["t/date=1/a.parquet", "t/date=1/b.parquet"]
    after = ["t/date=1/c.parquet", "t/date=2/d.parquet"]
    (one, to_c), (two, to_d) = put(directory, after[0]), put(directory, after[1])
    with monkeypatch.context() as patch:
        count = cut_off_after(patch, steps)
        try:
            with directory.exclusive() as writer:
                writer.make(Change("merge", (to_c, to_d), tuple(before), {"stream": 3}))
        except CutOffError:
            pass
    assert count() == steps, "the change has fewer steps than the test cuts"
    # As after an error, and as after the end of the process: both give the files up.
    one.discard()
    two.discard()
    found = listed(directory)
    assert found in (before, after)
    with directory.exclusive() as writer:
        assert writer.note("stream") == (3 if found == after else None)
    assert listed(directory) == found
    assert not list((tmp_path / "_journal").glob("*"))
    assert not list((tmp_path / "_staging").glob("*"))


def test_what_a_living_process_stages_is_left_alone(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    staging, _ = put(directory, "t/a.parquet")
    with directory.exclusive():
        assert (staging.path / "rows" / "part.parquet").exists()
    assert listed(directory) == []
    staging.discard()


def test_writer_waits_for_the_other_and_gives_up_in_the_end(tmp_path: Path) -> None:
    slept: list[float] = []
    directory = Directory(tmp_path, 1.0, now=lambda: sum(slept), sleep=slept.append)
    with (tmp_path / "_lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PipelineError, match="another job has been changing its tables for 1 s") as caught:
            directory.files("t")
        assert caught.value.code == ExitCode.FAILED
    assert sum(slept) == pytest.approx(1.0, abs=0.1)
    assert directory.files("t") == []


def test_staged_file_that_vanished_is_said(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    staging, move = put(directory, "t/a.parquet")
    with directory.exclusive() as writer:
        (tmp_path / move[0]).unlink()
        with pytest.raises(FileNotFoundError):
            writer.make(Change("add", (move,)))
    staging.discard()
    journal = tmp_path / "_journal"
    journal.mkdir(exist_ok=True)
    (journal / "x.json").write_text(json.dumps({"id": "x", "moves": [move], "removes": [], "notes": {}}))
    with pytest.raises(PipelineError, match="is gone, expected it to be moved"):
        directory.files("t")


def test_directory_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert Directory(tmp_path / "none").files("t") == []
    assert not (tmp_path / "none").exists()


def test_last_file_of_a_day_takes_the_day_along(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    add(directory, "t/date=1/hour=2/a.parquet", "t/date=2/hour=2/b.parquet")
    with directory.exclusive() as writer:
        writer.make(Change("drop", removes=("t/date=1/hour=2/a.parquet",)))
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["date=2"]
    with directory.exclusive() as writer:
        writer.make(Change("drop-all", removes=("t/date=2/hour=2/b.parquet",)))
    assert (tmp_path / "t").is_dir()
