"""Event files whose writer died: cut to the last whole flush and finished.

Rule: a writer holds a lock (flock) on its open file, and the kernel gives it back when the process ends, however it
does; so a lock that can be had proves that nobody writes. Files may lie where others can write: what is read is never
unpacked into memory as a whole.
"""

import fcntl
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from eventlog.file_names import finished_name, is_open_name

__all__ = ["GZIP", "Whole", "flush_directory", "lock", "recover", "same_file", "whole_members"]

# As zlib counts: a window of 32 KiB, and the head and check sum of gzip.
GZIP: Final = 31
CHUNK_BYTES: Final = 256 * 1024

Report = Callable[[str], None]


class Whole(NamedTuple):
    """The part of a file up to the end of its last whole gzip member, and the lines in it."""

    length: int
    lines: int


def recover(directory: Path, report: Report) -> int:
    """Finish what dead writers left in `directory`, and give the number of files; raises OSError.

    `report` hears of each file, also of one that cannot be finished: it must not keep others from being written.
    """
    recovered = 0
    for name in sorted(name for name in os.listdir(directory) if is_open_name(name)):
        try:
            recovered += _recover_one(directory, name, report)
        except OSError as error:
            report(f"{name}: cannot be finished in the place of its writer: {(error.strerror or str(error)).lower()}")
    return recovered


def _recover_one(directory: Path, name: str, report: Report) -> bool:
    path = directory / name
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), "r+b")
    except FileNotFoundError:
        return False  # another proxy was faster
    with file:
        if not lock(file) or not same_file(file, path):
            return False
        whole = whole_members(file)
        if not whole.lines:
            path.unlink()
            return False
        size = os.fstat(file.fileno()).st_size
        os.ftruncate(file.fileno(), whole.length)
        os.fsync(file.fileno())
        path.rename(directory / finished_name(name))
    flush_directory(directory)
    report(f"{finished_name(name)}: finished in the place of its writer, {whole.lines} events, "
           f"{size - whole.length} bytes behind the last flush cut off")  # fmt: skip
    return True


def lock(file: BinaryIO) -> bool:
    """Take the writer's lock; False if somebody else has it."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def same_file(file: BinaryIO, path: Path) -> bool:
    """Tell whether `path` still leads to this file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def whole_members(file: BinaryIO) -> Whole:
    """Read a file from its beginning, and find the end of the last gzip member that is whole and sound."""
    file.seek(0)
    length = lines = 0
    data = file.read(CHUNK_BYTES)
    while data:
        member = zlib.decompressobj(GZIP)
        read, unpacked = 0, 0
        with suppress(zlib.error):
            while data and not member.eof:
                read += len(data)
                unpacked += member.decompress(data, CHUNK_BYTES).count(b"\n")
                while member.unconsumed_tail and not member.eof:
                    unpacked += member.decompress(member.unconsumed_tail, CHUNK_BYTES).count(b"\n")
                data = member.unused_data if member.eof else file.read(CHUNK_BYTES)
        if not member.eof:
            break
        length += read - len(member.unused_data)
        lines += unpacked
        data = member.unused_data or file.read(CHUNK_BYTES)
    return Whole(length, lines)


def flush_directory(directory: Path) -> None:
    """Have the names in `directory` survive a crash of the machine; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
