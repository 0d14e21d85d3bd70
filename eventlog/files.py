"""Event files: JSON lines, compressed, bounded in size, age and sum.

Rule: each flush is a whole gzip member, so that of a proxy that was killed everything up to the last flush is there and
readable. A file is hidden and locked while it is written; finished, it has its name by one rename. Whatever the disk
does, the writer goes on: it says what failed and is asked again. Only one thread calls it.

Who makes a store may bring a faster way to make gzip members than the standard library has.
"""

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from eventlog.drain import StoreError
from eventlog.file_names import finished_name, new_name, open_name
from eventlog.members import GZIP
from eventlog.recovery import flush_directory, lock, recover, same_file
from eventlog.total import delete_oldest, finished_files, oldest_first

__all__ = ["Compress", "FileCounts", "FileSettings", "FileStore"]

# Measured on events: level 2 saves 4 % of the size and costs 30 % more, level 6 saves 13 % and costs 3.6 times as much.
LEVEL: Final = 1

# Makes a whole gzip member without a name in its head, which recovery would not know (`eventlog.members.HEADER`).
Compress = Callable[[bytes], bytes]


def _gzip_member(data: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    return packer.compress(data) + packer.flush()


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Where files go and how large and old they get; the directory keeps `max_total_bytes`, of all proxies; 0: all."""

    directory: Path
    proxy_id: str
    boot_id: str
    max_bytes: int
    max_age_seconds: float
    max_total_bytes: int


@dataclass(slots=True)
class FileCounts:
    """What became of files: finished here, for writers that had died, found damaged, deleted to keep to the sum."""

    finished: int = 0
    recovered: int = 0
    damaged: int = 0
    deleted: int = 0


@dataclass(slots=True)
class _Open:
    """The file that is being written; `length` is the end of the last whole flush."""

    file: BinaryIO
    path: Path
    began_at: float
    length: int = 0
    events: int = 0


class FileStore:
    """Writes the event files of one process (`eventlog.drain.Store`)."""

    def __init__(self, settings: FileSettings, note: Callable[[str], None], compress: Compress = _gzip_member) -> None:
        self.counts = FileCounts()
        self._settings = settings
        self._note = note
        self._compress = compress
        self._number = 0
        # The youngest file that was there before this process wrote any, as the file system has it.
        self._began_ns: int | None = None
        # The directory is to be looked at: a file was finished, or given up and is now like a dead writer's.
        self._untidy = True
        self._open: _Open | None = None

    def open(self) -> None:
        """Make the directory, finish what dead writers left there, and keep to the sum."""
        self._tidy_up()

    def write(self, lines: list[bytes], now: float) -> int:
        """Write one gzip member, all of it or nothing; raises StoreError."""
        member = self._compress(b"".join(lines))
        self.tick(now)
        opened = self._opened(now)
        try:
            _write_all(opened.file, member)
        except OSError as error:
            self._cut(opened)
            raise self._failure(error) from error
        opened.length += len(member)
        opened.events += len(lines)
        return len(member)

    def tick(self, now: float) -> None:
        """Finish a file that is large or old enough; raises StoreError."""
        opened, settings = self._open, self._settings
        self._tidy_up()
        if opened is None:
            return
        if opened.length >= settings.max_bytes or now - opened.began_at >= settings.max_age_seconds:
            self._end_file()

    def close(self) -> None:
        """Finish the file; raises StoreError."""
        if self._open is not None:
            self._end_file()
        self._tidy_up()

    # --- one file -----------------------------------------------------------------------------------

    def _opened(self, now: float) -> _Open:
        """Give the file to write to: the one there is, if nobody took it away, or a new one."""
        try:
            if self._open is not None:
                self._ensure_there(self._open)
            else:
                self._open = self._new_file(now)
        except OSError as error:
            raise self._failure(error) from error
        return self._open

    def _ensure_there(self, opened: _Open) -> None:
        """Raise StoreError if what is written would be found by nobody."""
        if not same_file(opened.file, opened.path):
            self._open = None
            with suppress(OSError):
                opened.file.close()
            problem = f"{opened.path}: deleted while it was written, {opened.events} events lost"
            raise StoreError(problem, lost_events=opened.events)

    def _new_file(self, now: float) -> _Open:
        settings = self._settings
        settings.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        while True:
            self._number += 1
            path = settings.directory / open_name(new_name(settings.proxy_id, settings.boot_id, self._number))
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            file = os.fdopen(os.open(path, flags, 0o640), "r+b", buffering=0)
            try:
                # In the moment before the lock another proxy may have taken it for a dead one's, and deleted it.
                if lock(file) and same_file(file, path):
                    return _Open(file, path, now)
            except OSError:
                path.unlink()  # a file system without locks would fill up with empty files
                file.close()
                raise
            file.close()

    def _cut(self, opened: _Open) -> None:
        """Take back half a flush; a file that cannot be cut is left to recovery, which can."""
        try:
            os.ftruncate(opened.file.fileno(), opened.length)
            opened.file.seek(opened.length)
        except OSError:
            self._open, self._untidy = None, True
            with suppress(OSError):
                opened.file.close()

    def _end_file(self) -> None:
        opened = self._open
        assert opened is not None
        try:
            self._ensure_there(opened)
            self._open, self._untidy = None, True
            with opened.file:
                if opened.events:
                    os.fsync(opened.file.fileno())
                    opened.path.rename(self._settings.directory / finished_name(opened.path.name))
                    self.counts.finished += 1
                else:
                    opened.path.unlink()
        except OSError as error:
            raise self._failure(error) from error
        self._tidy_up()

    # --- the directory ------------------------------------------------------------------------------

    def _tidy_up(self) -> None:
        """Look at the directory if there is need. What is wrong there must not keep events from being written."""
        if self._untidy:
            self._untidy = False
            try:
                self._tidy()
            except OSError as error:
                self._note(f"cannot be tidied: {self._failure(error)}")

    def _tidy(self) -> None:
        directory = self._settings.directory
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        flush_directory(directory)
        recovered = recover(directory, self._note)
        self.counts.recovered += recovered.finished
        self.counts.damaged += recovered.damaged
        self._keep_to_the_sum()

    def _keep_to_the_sum(self) -> None:
        found = finished_files(self._settings.directory)
        if self._began_ns is None:
            self._began_ns = max((file.changed_ns for file in found), default=0)
        if self._settings.max_total_bytes:
            oldest = oldest_first(found, self._settings.boot_id, self._began_ns)
            self.counts.deleted += delete_oldest(oldest, self._settings.max_total_bytes)

    def _failure(self, error: OSError) -> StoreError:
        problem = (error.strerror or str(error)).lower()
        return StoreError(f"{error.filename or self._settings.directory}: {problem}")


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(file.fileno(), view)
        view = view[written:]
