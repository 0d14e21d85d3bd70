"""Event files on a disk that fills up, is read-only, or loses what was on it."""

import errno
import fcntl
import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eventlog.drain import StoreError
from eventlog.file_names import finished_name, is_open_name, names_of, new_name, open_name
from eventlog.files import FileStore
from eventlog.reader import read_events
from tests.unit.eventlog.parts import BOOT, MIB, Disk, file_line, file_settings, finished, hidden, seqs

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


def test_each_flush_is_readable_while_the_file_is_written(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for flush in range(1, 4):
        store.write(lines(flush), 100.0)
        assert seqs(*hidden(tmp_path)) == list(range(1, flush + 1))
    store.close()


def test_gzip_reads_it_as_one_file(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.write(lines(1), 100.0)
    store.write(lines(2), 100.0)
    store.close()
    assert gzip.decompress(finished(tmp_path)[0].read_bytes()).count(b"\n") == 2


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


def test_without_events_there_is_no_file(tmp_path: Path) -> None:
    store = store_of(tmp_path / "new")
    store.tick(100.0)
    store.close()
    assert list((tmp_path / "new").iterdir()) == []


def test_file_whose_first_flush_failed_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path)
    Disk(monkeypatch, room=0)
    with pytest.raises(StoreError, match="no space left on device"):
        store.write(lines(1), 100.0)
    store.close()
    assert list(tmp_path.iterdir()) == []


# --- disks that fail ------------------------------------------------------------------------------


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


def test_disk_that_stays_full_fills_the_buffer_and_then_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = file_line(tmp_path)
    disk = Disk(monkeypatch, room=0)
    line.put()
    line.drain.step(100.0)
    line.put(1000)
    assert line.buffer.dropped > 0
    disk.room = MIB
    line.drain.step(110.0)
    line.put()
    line.drain.finish(111.0)
    problems: list[object] = []
    events = list(read_events(finished(tmp_path)[0], problems.append))
    assert (events[-1]["seq"], events[-1]["dropped_before"]) == (1002, line.buffer.dropped)
    assert problems == []


def test_file_that_cannot_be_cut_is_finished_by_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = file_line(tmp_path)
    line.put(2)
    line.drain.step(100.0)

    def refuse(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        Disk(broken, room=10)
        broken.setattr(os, "ftruncate", refuse)
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
    assert "deleted while it was written" in line.reports[0]
    line.put(1)
    line.drain.step(102.0)
    line.drain.finish(103.0)
    assert seqs(*finished(directory)) == [4, 5]
    assert (line.drain.counts.lost, line.drain.counts.written) == (3, 2)


def test_file_that_is_deleted_before_its_end_is_counted(tmp_path: Path) -> None:
    line = file_line(tmp_path)
    line.put(3)
    line.drain.step(100.0)
    hidden(tmp_path)[0].unlink()
    line.drain.finish(101.0)
    assert line.drain.counts.lost == 3


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOLCK])
def test_directory_that_cannot_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    line = file_line(tmp_path)

    def refuse(*arguments: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(*((fcntl, "flock", refuse) if number == errno.ENOLCK else (os, "open", refuse)))
        line.put(2)
        assert line.drain.step(100.0) == 1.0
        assert line.drain.step(101.0) == 2.0
        assert list(tmp_path.iterdir()) == []
    line.drain.step(103.0)
    line.drain.finish(104.0)
    assert seqs(*finished(tmp_path)) == [1, 2]
    assert line.drain.counts.lost == 0


def test_path_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = file_line(tmp_path / "file")
    line.put()
    line.drain.step(100.0)
    assert line.reports == [f"{tmp_path / 'file'}: file exists"]


def test_file_whose_end_fails_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = file_line(tmp_path, max_bytes=1)
    line.put(2)
    line.drain.step(100.0)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
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

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", refuse)
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


def test_oldest_finished_files_of_this_proxy_are_deleted(tmp_path: Path) -> None:
    for number, age in ((1, 30), (2, 20), (3, 10)):
        put_file(tmp_path, new_name("proxy", OTHER_BOOT, number), 1000, age)
    store = store_of(tmp_path, max_total_bytes=2500)
    assert [path.name[-10:] for path in finished(tmp_path)] == ["2.jsonl.gz", "3.jsonl.gz"]
    assert store.counts.deleted == 1


def test_files_of_others_stay(tmp_path: Path) -> None:
    strangers = [new_name("proxy-2", OTHER_BOOT, 1), "events.jsonl", f"events-{BOOT}-000001.jsonl.gz"]
    for name in [*strangers, new_name("proxy", OTHER_BOOT, 1)]:
        put_file(tmp_path, name, 5000, 10)
    store_of(tmp_path, max_total_bytes=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(strangers)


def test_open_file_is_never_deleted(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_total_bytes=1)
    store.write(lines(1, size=500), 100.0)
    second = store_of(tmp_path, boot_id=OTHER_BOOT, max_total_bytes=1)
    assert len(hidden(tmp_path)) == 1
    second.close()
    store.close()


def test_sum_of_zero_deletes_nothing(tmp_path: Path) -> None:
    put_file(tmp_path, new_name("proxy", OTHER_BOOT, 1), 10_000, 10)
    store_of(tmp_path, max_total_bytes=0)
    assert len(finished(tmp_path)) == 1


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("proxy_id", ["proxy-0", "a/b", "../x", "mit Umlaut ä", "p" * 5000, ".hidden", "a%2Fb"])
def test_any_name_of_a_proxy_is_a_name_of_a_file(tmp_path: Path, proxy_id: str) -> None:
    store = store_of(tmp_path, proxy_id=proxy_id)
    store.write(lines(1), 100.0)
    store.close()
    (path,) = finished(tmp_path)
    assert names_of(proxy_id).fullmatch(path.name)
    assert seqs(path) == [1]


def test_no_two_proxies_share_a_name() -> None:
    ids = ["a", "a-b", "a/b", "a%2Fb", "p" * 5000, "p" * 5001, f"a-{BOOT}-000001"]
    assert len({new_name(proxy_id, BOOT, 1) for proxy_id in ids}) == len(ids)
    for proxy_id in ids:
        matched = [other for other in ids if names_of(proxy_id).fullmatch(new_name(other, BOOT, 1))]
        assert matched == [proxy_id]


def test_names_of_open_files_lead_to_the_finished_ones() -> None:
    name = new_name("proxy", BOOT, 12)
    assert is_open_name(open_name(name))
    assert finished_name(open_name(name)) == name
    assert not is_open_name(name)
    assert not is_open_name(f".{name}.swp")
