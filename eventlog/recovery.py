"""Recovery of event files whose writer died: they are truncated to the last whole flush and finished.

Rule: a writer holds a lock (flock) on its open file, and the kernel releases the lock in any case when the process
ends; so a free lock proves that the writer is dead. No byte that could be an event is deleted: the sound flushes of a
damaged file are finished, also those after the damage, and the damaged file stays, hidden, as `.damaged`. A file that
was finished and got damaged later stays as it is: its sound flushes are copied.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from eventlog.file_names import copy_name, damaged_name, finished_name, is_open_name, saved_name
from eventlog.members import CHUNK_BYTES, GzipSpan, gzip_spans, is_zero

__all__ = ["Copied", "Recovered", "copy_sound", "flush_directory", "lock", "recover", "same_file"]

Report = Callable[[str], None]


class Recovered(NamedTuple):
    """Counts of files that were finished for dead writers, and of damaged files."""

    finished: int = 0
    damaged: int = 0


class Copied(NamedTuple):
    """What is sound of a file: its events, the bytes outside of them, and the copy, None where all or nothing is."""

    events: int
    skipped_bytes: int
    to: Path | None


_NOTHING: Final = Recovered()
# O_NONBLOCK: a FIFO must not hold up the start.
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def recover(directory: Path, report: Report) -> Recovered:
    """Finish the files of dead writers in `directory`, and return the numbers of files; raise OSError.

    `report` is called for each file. A file that cannot be finished is only reported, since it must not stop the
    writing of other files.
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


def copy_sound(path: Path) -> Copied:
    """Copy the sound flushes of a damaged file into another beside it; raise OSError.

    The copy has a name of its own: a reader that has seen the file once takes nothing more by that name.
    """
    with path.open("rb", buffering=0) as file:
        found = gzip_spans(file)
        sound = [span for span in found if span.kind == "sound"]
        events, skipped = sum(span.lines for span in sound), sum(s.end - s.start for s in found if s not in sound)
        if not (sound and skipped):
            return Copied(events, skipped, None)
        to = path.with_name(copy_name(path.name))
        saved = path.with_name(saved_name(to.name))
        _save(file, saved, sound)
    saved.rename(to)
    flush_directory(path.parent)
    return Copied(events, skipped, to)


def _recover_one(directory: Path, name: str, report: Report) -> Recovered:
    path = directory / name
    try:
        file = os.fdopen(os.open(path, _FLAGS), "r+b", buffering=0)
    except FileNotFoundError:
        return _NOTHING  # another proxy was faster
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if not lock(file) or not same_file(file, path):
            return _NOTHING
        found = gzip_spans(file)
        sound = [span for span in found if span.kind == "sound"]
        damaged = any(span.kind == "damaged" for span in found)
        if damaged or not (sound or is_zero(file, 0)):
            return _set_aside(file, path, sound, report)
        if not sum(span.lines for span in sound):
            path.unlink()
            return _NOTHING
        return _cut(file, path, sound[0], report)


def _cut(file: BinaryIO, path: Path, sound: GzipSpan, report: Report) -> Recovered:
    """Finish a file that lacks at most its last flush."""
    name = finished_name(path.name)
    size = os.fstat(file.fileno()).st_size
    os.ftruncate(file.fileno(), sound.end)
    os.fsync(file.fileno())
    path.rename(path.with_name(name))
    flush_directory(path.parent)
    report(f"{name}: finished in the place of its writer, {sound.lines} events, "
           f"{size - sound.end} bytes after the last flush cut off")  # fmt: skip
    return Recovered(finished=1)


def _set_aside(file: BinaryIO, path: Path, sound: list[GzipSpan], report: Report) -> Recovered:
    """Finish a copy of the sound parts, and rename the file so that it is no longer treated as open."""
    name, kept = finished_name(path.name), damaged_name(finished_name(path.name))
    size, whole = os.fstat(file.fileno()).st_size, sum(span.end - span.start for span in sound)
    if sound:
        # After a crash in between the open file is still there, and the next recovery starts again.
        _save(file, path.with_name(saved_name(name)), sound)
        path.with_name(saved_name(name)).rename(path.with_name(name))
    path.rename(path.with_name(kept))
    flush_directory(path.parent)
    report(f"{name}: damaged, {sum(span.lines for span in sound)} events of sound flushes finished in the place "
           f"of its writer, {size - whole} of {size} bytes skipped, all kept as {kept}")  # fmt: skip
    return Recovered(finished=bool(sound), damaged=1)


def _save(file: BinaryIO, path: Path, sound: Iterable[GzipSpan]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    times = os.fstat(file.fileno())
    try:
        with os.fdopen(os.open(path, flags, 0o640), "wb") as saved:
            for span in sound:
                _copy(file, saved, span)
            saved.flush()
            os.utime(saved.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(saved.fileno())
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def _copy(file: BinaryIO, saved: BinaryIO, span: GzipSpan) -> None:
    file.seek(span.start)
    left = span.end - span.start
    while left and (data := file.read(min(left, CHUNK_BYTES))):
        saved.write(data)
        left -= len(data)


def lock(file: BinaryIO) -> bool:
    """Acquire the writer's lock; return False if another process holds it."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def same_file(file: BinaryIO, path: Path) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def flush_directory(directory: Path) -> None:
    """Flush the names in `directory` to disk, to survive a crash of the machine; raise OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
