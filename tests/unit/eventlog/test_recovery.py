"""What is left of writers that died, and what is not touched of those that live."""

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
from eventlog.recovery import GZIP, lock, recover, whole_members
from tests.unit.eventlog.parts import BOOT, file_line, file_settings, finished, hidden, seqs

OTHER_BOOT = "fedcba9876543210"
ROOT = Path(__file__).parents[3]
# Writes flush after flush, says how many events are safe, and does so until it is killed.
WRITER = """
import json, sys
from pathlib import Path
from tests.unit.eventlog.parts import file_line
line = file_line(Path(sys.argv[1]), boot_id=sys.argv[2])
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


def recovered(directory: Path) -> tuple[int, list[str]]:
    notes: list[str] = []
    return recover(directory, notes.append), notes


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (member(1, 2), [1, 2]),
        (member(1, 2) + member(3), [1, 2, 3]),
        (member(1, 2) + member(3)[:-1], [1, 2]),
        (member(1, 2) + member(3)[:5], [1, 2]),
        (member(1, 2) + b"\0" * 4096, [1, 2]),
        (member(1) + bytes([member(2)[0] ^ 255]) + member(2)[1:], [1]),
        (member(1) + member(2)[:-6] + b"\xff" * 6, [1]),
        (b"".join(member(n) for n in range(500)), list(range(500))),
        (member(*range(60_000)), list(range(60_000))),
    ],
    ids=["whole", "members", "last byte", "head", "zeroes", "magic", "check sum", "many", "long"],
)
def test_file_of_a_dead_writer_is_cut_to_its_last_flush(tmp_path: Path, data: bytes, kept: list[int]) -> None:
    leave(tmp_path, data)
    assert recovered(tmp_path)[0] == 1
    assert hidden(tmp_path) == []
    assert seqs(*finished(tmp_path)) == kept


@pytest.mark.parametrize("data", [b"", member(1)[:-1], b"\0" * 100, b"no gzip"])
def test_file_without_a_whole_flush_is_removed(tmp_path: Path, data: bytes) -> None:
    leave(tmp_path, data)
    assert recovered(tmp_path)[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_note_says_what_was_cut(tmp_path: Path) -> None:
    leave(tmp_path, member(1, 2) + b"\0" * 77)
    _, (note,) = recovered(tmp_path)
    assert note.startswith(f"{new_name('other', OTHER_BOOT, 1)}: finished in the place of its writer, 2 events, ")
    assert note.endswith(", 77 bytes behind the last flush cut off")


def test_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    path = leave(tmp_path, member(1))
    with path.open("r+b") as file:
        assert lock(file)
        assert recovered(tmp_path) == (0, [])
    assert recovered(tmp_path)[0] == 1


def test_whole_members_does_not_unpack_a_bomb_at_once(tmp_path: Path) -> None:
    import tracemalloc

    packer = zlib.compressobj(9, zlib.DEFLATED, GZIP)
    bomb = b"".join(packer.compress(b"\0" * 2**20) for _ in range(64)) + packer.flush()
    path = leave(tmp_path, bomb)
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            assert whole_members(file).length == len(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_file_that_cannot_be_finished_keeps_no_other_from_it(tmp_path: Path) -> None:
    (tmp_path / open_name(new_name("other", OTHER_BOOT, 1))).symlink_to(tmp_path / "elsewhere")
    leave(tmp_path, member(1), number=2)
    count, notes = recovered(tmp_path)
    assert count == 1
    assert "cannot be finished in the place of its writer" in notes[0]
    assert seqs(*finished(tmp_path)) == [1]


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    for name in (".profile", ".events-x.jsonl.gz.open", "events.open"):
        (tmp_path / name).write_bytes(b"")
    assert recovered(tmp_path) == (0, [])
    assert len(list(tmp_path.iterdir())) == 3


def test_start_finishes_what_the_last_one_left(tmp_path: Path) -> None:
    leave(tmp_path, member(7))
    line = file_line(tmp_path)
    line.put(2)
    line.drain.step(100.0)
    line.drain.finish(101.0)
    assert sorted(seqs(*finished(tmp_path))) == [1, 2, 7]
    assert line.store.counts.recovered == 1


def test_running_proxy_finishes_what_another_leaves_later(tmp_path: Path) -> None:
    line = file_line(tmp_path, max_age_seconds=5.0)
    line.put(1)
    line.drain.step(100.0)
    leave(tmp_path, member(7))
    line.drain.step(106.0)
    assert sorted(seqs(*finished(tmp_path))) == [1, 7]
    line.drain.finish(107.0)


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
    raced: list[int] = []

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


@pytest.mark.parametrize("round_", range(2))
def test_every_flushed_event_of_a_killed_writer_is_readable(tmp_path: Path, round_: int) -> None:
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
    assert recovered(tmp_path)[0] == 1
    found = seqs(*finished(tmp_path))
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= safe
