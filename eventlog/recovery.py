"""Event files whose writer died: cut to the last whole flush and finished.

Rule: a writer holds a lock (flock) on its open file, and the kernel gives it back when the process ends, however it
does; so a lock that can be had proves that nobody writes. Nothing is deleted that could be an event: of a file that is
damaged the sound flushes are finished, also those behind the damage, and the file itself stays, hidden, as `.damaged`.
"""

import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from eventlog.file_names import damaged_name, finished_name, is_open_name, saved_name
from eventlog.members import CHUNK_BYTES, Stretch, is_zero, stretches

__all__ = ["Recovered", "flush_directory", "lock", "recover", "same_file"]

Report = Callable[[str], None]


class Recovered(NamedTuple):
    """Files that were finished in the place of their writers, and files that were damaged."""

    finished: int = 0
    damaged: int = 0


_NOTHING: Final = Recovered()


def recover(directory: Path, report: Report) -> Recovered:
    """Finish what dead writers left in `directory`, and give the numbers of files; raises OSError.

    `report` hears of each file, also of one that cannot be finished: it must not keep others from being written.
    """
    finished = damaged = 0
    for name in sorted(name for name in os.listdir(directory) if is_open_name(name)):
        try:
            one = _recover_one(directory, name, report)
        except OSError as error:
            report(f"{name}: cannot be finished in the place of its writer: {(error.strerror or str(error)).lower()}")
        else:
            finished, damaged = finished + one.finished, damaged + one.damaged
    return Recovered(finished, damaged)


def _recover_one(directory: Path, name: str, report: Report) -> Recovered:
    path = directory / name
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), "r+b", buffering=0)
    except FileNotFoundError:
        return _NOTHING  # another proxy was faster
    with file:
        if not lock(file) or not same_file(file, path):
            return _NOTHING
        found = stretches(file)
        sound = [stretch for stretch in found if stretch.kind == "sound"]
        damaged = any(stretch.kind == "damaged" for stretch in found)
        if damaged or not (sound or is_zero(file, 0)):
            return _set_aside(file, path, sound, report)
        if not sum(stretch.lines for stretch in sound):
            path.unlink()
            return _NOTHING
        return _cut(file, path, sound[0], report)


def _cut(file: BinaryIO, path: Path, sound: Stretch, report: Report) -> Recovered:
    """Finish a file of which no more than its last flush is missing."""
    name = finished_name(path.name)
    size = os.fstat(file.fileno()).st_size
    os.ftruncate(file.fileno(), sound.end)
    os.fsync(file.fileno())
    path.rename(path.with_name(name))
    flush_directory(path.parent)
    report(f"{name}: finished in the place of its writer, {sound.lines} events, "
           f"{size - sound.end} bytes behind the last flush cut off")  # fmt: skip
    return Recovered(finished=1)


def _set_aside(file: BinaryIO, path: Path, sound: list[Stretch], report: Report) -> Recovered:
    """Finish a copy of what is sound, and keep the file where nobody takes it for an open one."""
    name, kept = finished_name(path.name), damaged_name(finished_name(path.name))
    size, whole = os.fstat(file.fileno()).st_size, sum(stretch.end - stretch.start for stretch in sound)
    if sound:
        # A process that dies in between leaves the open file, and the next process begins anew.
        _save(file, path.with_name(saved_name(name)), sound)
        path.with_name(saved_name(name)).rename(path.with_name(name))
    path.rename(path.with_name(kept))
    flush_directory(path.parent)
    report(f"{name}: damaged, {sum(stretch.lines for stretch in sound)} events of sound flushes finished in the place "
           f"of its writer, {size - whole} of {size} bytes skipped, all kept as {kept}")  # fmt: skip
    return Recovered(finished=bool(sound), damaged=1)


def _save(file: BinaryIO, path: Path, sound: Iterable[Stretch]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    times = os.fstat(file.fileno())
    try:
        with os.fdopen(os.open(path, flags, 0o640), "wb") as saved:
            for stretch in sound:
                _copy(file, saved, stretch)
            saved.flush()
            os.utime(saved.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(saved.fileno())
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def _copy(file: BinaryIO, saved: BinaryIO, stretch: Stretch) -> None:
    file.seek(stretch.start)
    left = stretch.end - stretch.start
    while left and (data := file.read(min(left, CHUNK_BYTES))):
        saved.write(data)
        left -= len(data)


def lock(file: BinaryIO) -> bool:
    """Take the writer's lock; False if somebody else has it."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def same_file(file: BinaryIO, path: Path) -> bool:
    """Return whether `path` still leads to this file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def flush_directory(directory: Path) -> None:
    """Flush the names in `directory` to the disk, so that they survive a crash of the machine; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
