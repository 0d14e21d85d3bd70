"""Event files on a disk that fills up, is read-only, or loses what was on it."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eventlog.drain import StoreError
from eventlog.file_names import file_name, new_name, open_name
from eventlog.files import FileStore
from tests.unit.eventlog.parts import (
    BOOT,
    MIB,
    Disk,
    file_line,
    file_settings,
    finished,
    hidden,
    read_events,
    refuse,
    seqs,
)

OTHER_BOOT = "fedcba9876543210"


def store_of(directory: Path, **changes: Any) -> FileStore:
    notes: list[str] = []
    store = FileStore(file_settings(directory, **changes), notes.append)
    store.open()
    return store


def lines(*numbers: int, size: int = 10) -> list[bytes]:
    # Bytes that do not compress, so that sizes are what they seem.
    return [b'{"seq":%d,"text":"%s"}\n' % (number, os.urandom(size).hex().encode()) for number in numbers]


def test_file_is_hidden_until_it_is_finished(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.write(lines(1, 2), 100.0)
    assert finished(tmp_path) == []
    assert [path.name for path in hidden(tmp_path)] == [f".events-proxy-{BOOT}-000001.jsonl.gz.open"]
    store.close()
    assert hidden(tmp_path) == []
    assert [path.name for path in finished(tmp_path)] == [f"events-proxy-{BOOT}-000001.jsonl.gz"]
    assert seqs(*finished(tmp_path)) == [1, 2]


def test_old_file_is_finished_without_more_events(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_age_seconds=60.0)
    store.write(lines(1), 100.0)
    store.tick(159.9)
    assert finished(tmp_path) == []
    store.tick(160.0)
    assert seqs(*finished(tmp_path)) == [1]


def test_large_file_is_finished_and_the_next_begun(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_bytes=10_000)
    for number in range(1, 6):
        store.write(lines(number, size=6_000), 100.0)
    store.close()
    assert [seqs(path) for path in finished(tmp_path)] == [[1, 2], [3, 4], [5]]
    assert store.counts.finished == 3


# --- disks that fail ------------------------------------------------------------------------------


def test_file_whose_first_flush_failed_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path)
    Disk(monkeypatch, room=0)
    with pytest.raises(StoreError, match="no space left on device"):
        store.write(lines(1), 100.0)
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_full_disk_costs_no_event_once_there_is_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = file_line(tmp_path)
    line.put(3)
    line.drain.step(100.0)
    disk = Disk(monkeypatch, room=20)
    line.put(3)
    line.drain.step(101.0)
    # Half a flush was written, and is not there.
    assert seqs(*hidden(tmp_path)) == [1, 2, 3]
    disk.room = MIB
    line.drain.step(102.0)
    line.drain.finish(103.0)
    assert seqs(*finished(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert (line.drain.counts.errors, line.drain.counts.lost) == (1, 0)
    assert line.reports == [f"{tmp_path}: no space left on device"]


def test_file_that_cannot_be_cut_is_finished_by_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = file_line(tmp_path)
    line.put(2)
    line.drain.step(100.0)

    with monkeypatch.context() as broken:
        Disk(broken, room=10)
        refuse(broken, "os.ftruncate")
        line.put(2)
        line.drain.step(101.0)
    line.drain.step(102.0)
    line.drain.finish(103.0)
    assert sorted(seqs(*finished(tmp_path))) == [1, 2, 3, 4]
    assert hidden(tmp_path) == []


def test_directory_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "events"
    line = file_line(directory)
    line.put(3)
    line.drain.step(100.0)
    shutil.rmtree(directory)
    line.put(1)
    line.drain.step(101.0)
    assert line.reports[0].endswith("deleted while it was written, 3 events lost")
    line.put(1)
    line.drain.step(102.0)
    line.drain.finish(103.0)
    (path,) = finished(directory)
    assert [(event["seq"], event["dropped_before"]) for event in read_events(path)] == [(4, 3), (5, 0)]
    assert (line.drain.counts.lost, line.drain.counts.written) == (3, 5)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOLCK])
def test_directory_that_cannot_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    line = file_line(tmp_path)

    with monkeypatch.context() as broken:
        refuse(broken, "fcntl.flock" if number == errno.ENOLCK else "os.open", number)
        line.put(2)
        assert line.drain.step(100.0) == 1.0
        assert line.drain.step(101.0) == 2.0
        assert list(tmp_path.iterdir()) == []
    line.drain.step(103.0)
    line.drain.finish(104.0)
    assert seqs(*finished(tmp_path)) == [1, 2]
    assert line.drain.counts.lost == 0


def test_file_whose_end_fails_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = file_line(tmp_path, max_bytes=1)
    line.put(2)
    line.drain.step(100.0)

    with monkeypatch.context() as broken:
        refuse(broken, "os.fsync")
        line.put(1)
        line.drain.step(101.0)
    assert line.drain.counts.errors == 1
    line.drain.step(110.0)
    line.drain.finish(111.0)
    assert sorted(seqs(*finished(tmp_path))) == [1, 2, 3]


def test_directory_that_cannot_be_tidied_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    put_file(tmp_path, new_name("proxy", OTHER_BOOT, 1), 1000, 10)

    with monkeypatch.context() as broken:
        refuse(broken, "os.unlink", errno.EPERM)
        store = FileStore(file_settings(tmp_path, max_total_bytes=1), notes.append)
        store.open()
        store.write(lines(1), 100.0)
        store.close()
    assert notes
    assert all(note.startswith("cannot be tidied: ") for note in notes)
    assert len(finished(tmp_path)) == 2


# --- how much is kept -----------------------------------------------------------------------------


def put_file(directory: Path, name: str, size: int, age: int) -> None:
    path = directory / name
    path.write_bytes(b"x" * size)
    os.utime(path, (1_000_000 - age, 1_000_000 - age))


@pytest.mark.threat("event-flood")
def test_oldest_finished_files_are_deleted(tmp_path: Path) -> None:
    # Of a proxy that has gone.
    for number, age in ((1, 30), (2, 20), (3, 10)):
        put_file(tmp_path, new_name("other", OTHER_BOOT, number), 1000, age)
    store = store_of(tmp_path, max_total_bytes=2500)
    assert [path.name[-10:] for path in finished(tmp_path)] == ["2.jsonl.gz", "3.jsonl.gz"]
    assert store.counts.deleted == 1


def test_clock_that_was_set_back_does_not_make_the_newest_the_oldest(tmp_path: Path) -> None:
    # The files of the last start, then this one's; after its first the clock is set back.
    for number, age in ((1, 30), (2, 20), (3, 10)):
        put_file(tmp_path, new_name("proxy", OTHER_BOOT, number), 1000, age)
    store = store_of(tmp_path, max_bytes=1, max_total_bytes=4000)
    for number, age in ((1, 5), (2, 7200), (3, 7190)):
        store.write(lines(number, size=1000), 100.0)
        store.tick(101.0)
        os.utime(tmp_path / new_name("proxy", BOOT, number), (1_000_000 - age, 1_000_000 - age))
    store.tick(102.0)
    store.write(lines(4, size=1000), 103.0)
    store.close()
    assert [path.name for path in finished(tmp_path)] == [new_name("proxy", BOOT, number) for number in (2, 3, 4)]


def test_other_files_stay(tmp_path: Path) -> None:
    strangers = [
        "events.jsonl", f"events-{BOOT}-000001.jsonl.gz", f".{new_name('proxy', BOOT, 1)}",
        f"{new_name('proxy', BOOT, 1)}.damaged", f"x{new_name('proxy', BOOT, 1)}", f"{new_name('proxy', BOOT, 1)}.tmp",
    ]  # fmt: skip
    for name in [*strangers, new_name("proxy", OTHER_BOOT, 1)]:
        put_file(tmp_path, name, 5000, 10)
    store_of(tmp_path, max_total_bytes=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(strangers)


def test_files_are_for_their_group_and_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = store_of(tmp_path / "new")
        store.write(lines(1), 100.0)
        store.close()
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o750
    assert finished(tmp_path / "new")[0].stat().st_mode & 0o777 == 0o640


def test_file_that_is_there_is_never_written_into(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    path = tmp_path / open_name(new_name("proxy", BOOT, 1))
    target = tmp_path / "elsewhere"
    target.write_bytes(b"precious")
    path.symlink_to(target)
    with pytest.raises(StoreError, match="file exists"):
        store.write(lines(1), 100.0)
    store.write(lines(1), 101.0)
    store.close()
    assert (target.read_bytes(), seqs(*finished(tmp_path))) == (b"precious", [1])


def test_open_file_is_never_deleted(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_total_bytes=1)
    store.write(lines(1, size=500), 100.0)
    second = store_of(tmp_path, boot_id=OTHER_BOOT, max_total_bytes=1)
    assert len(hidden(tmp_path)) == 1
    second.close()
    store.close()


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("proxy_id", ["proxy-0", "a/b", "../x", "mit Umlaut ä", "p" * 5000, ".hidden", "a%2Fb"])
def test_any_name_of_a_proxy_is_a_name_of_a_file(tmp_path: Path, proxy_id: str) -> None:
    store = store_of(tmp_path, proxy_id=proxy_id)
    store.write(lines(1), 100.0)
    store.close()
    (path,) = finished(tmp_path)
    assert file_name(path.name) == (file_name(new_name(proxy_id, BOOT, 1)))
    assert seqs(path) == [1]
