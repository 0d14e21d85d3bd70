"""What is left of writers that died, and what is not touched of those that live."""

import errno
import io
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from eventlog import files
from eventlog.file_names import new_name, open_name
from eventlog.files import FileStore
from eventlog.members import CHUNK_BYTES, GZIP, VAIN_BYTES, GzipSpan, gzip_spans
from eventlog.recovery import Recovered, lock, recover
from tests.unit.eventlog.parts import BOOT, HEADER, file_line, file_settings, finished, hidden, refuse, seqs

OTHER_BOOT = "fedcba9876543210"
ROOT = Path(__file__).parents[3]
# Writes flush after flush to one file, says how many events are safe, and does so until it is killed.
WRITER = """
import json, sys
from pathlib import Path
from tests.unit.eventlog.parts import file_line
line = file_line(Path(sys.argv[1]), boot_id=sys.argv[2], max_age_seconds=1e9, max_bytes=2**40)
now = 100.0
while True:
    line.put(50, client_id="c" * 100)
    line.drain.step(now)
    now += 1.0
    print(line.drain.counts.written, flush=True)
"""


def member(*numbers: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, GZIP)
    text = b"".join(b'{"seq":%d}\n' % number for number in numbers)
    return packer.compress(text) + packer.flush()


def leave(directory: Path, data: bytes, number: int = 1, boot: str = OTHER_BOOT) -> Path:
    path = directory / open_name(new_name("other", boot, number))
    path.write_bytes(data)
    return path


def recovered(directory: Path) -> tuple[Recovered, list[str]]:
    notes: list[str] = []
    return recover(directory, notes.append), notes


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (member(1, 2) + member(3), [1, 2, 3]),
        (member(1, 2) + member(3)[:-1], [1, 2]),
        (member(1, 2) + member(3)[:5], [1, 2]),
        (member(1, 2) + b"\0" * 4096, [1, 2]),
        (member(*range(60_000)), list(range(60_000))),
    ],
    ids=["members", "last byte", "head", "zeroes", "long"],
)
def test_file_of_a_dead_writer_is_cut_to_its_last_flush(tmp_path: Path, data: bytes, kept: list[int]) -> None:
    leave(tmp_path, data)
    assert recovered(tmp_path)[0] == (1, 0)
    assert hidden(tmp_path) == []
    assert seqs(*finished(tmp_path)) == kept


@pytest.mark.parametrize("data", [b"", b"\0" * 100])
def test_file_without_anything_in_it_is_removed(tmp_path: Path, data: bytes) -> None:
    leave(tmp_path, data)
    assert recovered(tmp_path) == ((0, 0), [])
    assert list(tmp_path.iterdir()) == []


def broken(*numbers: int) -> bytes:
    """Give a member whose packed bytes are damaged."""
    data = bytearray(member(*numbers))
    data[len(data) // 2] ^= 255
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (broken(1, 2) + b"".join(member(n) for n in range(3, 9)), list(range(3, 9))),
        (member(1) + broken(2) + member(3) + broken(4) + member(5)[:-3], [1, 3]),
        (member(1) + b"\0" * 100 + member(2), [1, 2]),
        (member(1) + HEADER + member(2), [1, 2]),
        (member(1) + b"x" * (CHUNK_BYTES - 1) + member(2), [1, 2]),
        (member(1) + member(2)[:-6] + b"\xff" * 6, [1]),
    ],
    ids=["first", "several", "zeroes", "two heads", "head across reads", "check sum"],
)
def test_damage_costs_what_it_hit_and_the_file_is_kept(tmp_path: Path, data: bytes, kept: list[int]) -> None:
    path = leave(tmp_path, data)
    os.utime(path, ns=(10**18, 10**18))
    done, (note,) = recovered(tmp_path)
    assert done == (1, 1)
    (whole,) = finished(tmp_path)
    assert seqs(whole) == kept
    assert (whole.stat().st_mode & 0o777, whole.stat().st_mtime_ns) == (0o640, 10**18)
    (aside,) = hidden(tmp_path)
    assert (aside.name, aside.read_bytes()) == (f".{whole.name}.damaged", data)
    assert note.startswith(f"{whole.name}: damaged, {len(kept)} events of sound flushes finished")
    assert note.endswith(f"{len(data) - whole.stat().st_size} of {len(data)} bytes skipped, all kept as {aside.name}")
    assert recovered(tmp_path) == ((0, 0), [])


@pytest.mark.parametrize("data", [member(1)[:-1], b"no gzip", broken(1, 2), broken(1) + broken(2)])
def test_file_of_which_nothing_is_sound_is_kept_aside(tmp_path: Path, data: bytes) -> None:
    leave(tmp_path, data)
    done, (note,) = recovered(tmp_path)
    assert (done, finished(tmp_path)) == ((0, 1), [])
    (aside,) = hidden(tmp_path)
    assert aside.read_bytes() == data
    assert f"{len(data)} of {len(data)} bytes skipped" in note


def test_file_that_cannot_be_copied_stays_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = leave(tmp_path, member(1) + broken(2) + member(3))

    with monkeypatch.context() as full:
        refuse(full, "os.fsync", errno.ENOSPC)
        done, (note,) = recovered(tmp_path)
    assert (done, list(tmp_path.iterdir())) == ((0, 0), [path])
    assert "no space left on device" in note
    assert recovered(tmp_path)[0] == (1, 1)
    assert seqs(*finished(tmp_path)) == [1, 3]


@pytest.mark.parametrize("data", [member(1), member(1) + broken(2) + member(3)], ids=["cut", "copied"])
def test_file_has_its_name_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    leave(tmp_path, data)
    synced: list[int] = []
    sync, rename = os.fsync, Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if not target.name.startswith("."):
            assert path.stat().st_ino in synced
        return rename(path, target)

    def sync_noted(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", sync_noted)
    monkeypatch.setattr(Path, "rename", renamed)
    assert recovered(tmp_path)[0].finished == 1
    assert synced[-1] == tmp_path.stat().st_ino, "the names last"


def test_search_for_members_does_not_unpack_a_bomb_at_once(tmp_path: Path) -> None:
    import tracemalloc

    packer = zlib.compressobj(9, zlib.DEFLATED, GZIP)
    bomb = b"".join(packer.compress(b"\0" * 2**20) for _ in range(64)) + packer.flush()
    path = leave(tmp_path, bomb)
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            assert gzip_spans(file) == [GzipSpan("sound", 0, len(bomb))]
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_fifo_with_the_name_of_an_open_file_is_left_alone(tmp_path: Path) -> None:
    path = leave(tmp_path, b"")
    path.unlink()
    os.mkfifo(path)
    found, said = recovered(tmp_path)
    assert (found, path.is_fifo()) == (Recovered(), True)
    assert said == [f"{path.name}: cannot be finished in the place of its writer: not a regular file"]


def test_two_proxies_in_one_directory_keep_out_of_each_others_way(tmp_path: Path) -> None:
    first, second = (file_line(tmp_path, boot_id=boot, max_age_seconds=1.0) for boot in (BOOT, OTHER_BOOT))
    for number in range(6):
        for line in (first, second):
            line.put(2)
            line.drain.step(100.0 + number)
    for line in (first, second):
        line.drain.finish(110.0)
    assert hidden(tmp_path) == []
    assert sorted(seqs(*finished(tmp_path))) == sorted([*range(1, 13), *range(1, 13)])
    assert first.store.counts.recovered == second.store.counts.recovered == 0


def test_file_taken_for_a_dead_ones_before_its_lock_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[Recovered] = []

    def lock_late(file: object) -> bool:
        if not raced:
            raced.append(recover(tmp_path, lambda note: None))
        return lock(file)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "lock", lock_late)
    store = FileStore(file_settings(tmp_path), lambda note: None)
    store.open()
    store.write([b'{"seq":1}\n'], 100.0)
    store.close()
    assert [path.name for path in finished(tmp_path)] == [new_name("proxy", BOOT, 2)]
    assert seqs(*finished(tmp_path)) == [1]


def test_every_flushed_event_of_a_killed_writer_is_readable(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), OTHER_BOOT]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        safe = 0
        while safe < 500:
            safe = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        safe = max([safe, *(int(line) for line in child.stdout.read().split(b"\n") if line.endswith(b"0"))])
    assert len(hidden(tmp_path)) == 1
    assert recovered(tmp_path)[0] == (1, 0)
    found = seqs(*finished(tmp_path))
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= safe


def test_search_for_members_does_not_read_the_square_of_a_file() -> None:
    class Counted(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    # Each head begins a member that all the rest belongs to.
    file = Counted((HEADER + member(1)[4:-8]) * 20_000)
    size = len(file.getvalue())
    assert gzip_spans(file) == [GzipSpan("damaged", 0, size)]
    assert file.taken <= 2 * VAIN_BYTES + size
