"""Event files: JSON lines, compressed, bounded in size, age and total size.

Rule: each flush is a whole gzip member, so after a kill everything up to the last flush is readable. A file is hidden
and locked while it is written, and a single rename finishes it. The writer survives every error of the disk: it reports
the error and is called again. Only a single thread calls it.

A store may get a faster function to make gzip members than that of the standard library.
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

# Makes a whole gzip member; its header has no file name, or recovery would not find it (`eventlog.members.HEADER`).
Compress = Callable[[bytes], bytes]


def _gzip_member(data: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    return packer.compress(data) + packer.flush()


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The directory of files and their limits; `max_total_bytes` is for the files of all proxies, 0: no limit."""

    directory: Path
    proxy_id: str
    boot_id: str
    max_bytes: int
    max_age_seconds: float
    max_total_bytes: int


@dataclass(slots=True)
class FileCounts:
    """Counts of files: finished here, finished for dead writers, found damaged, deleted to stay below the limit."""

    finished: int = 0
    recovered: int = 0
    damaged: int = 0
    deleted: int = 0


@dataclass(slots=True)
class _Open:
    """The file that is being written; `length` is the offset after the last whole flush."""

    file: BinaryIO
    path: Path
    began_at: float
    length: int = 0
    events: int = 0


class FileStore:
    """Writes the event files of a process (implements `eventlog.drain.Store`)."""

    def __init__(self, settings: FileSettings, note: Callable[[str], None], compress: Compress = _gzip_member) -> None:
        self.counts = FileCounts()
        self._settings = settings
        self._note = note
        self._compress = compress
        self._number = 0
        # Time of the youngest file that was there before this process wrote any, by the file system.
        self._began_ns: int | None = None
        # The directory needs tidying: a file was finished, or was given up and is now like that of a dead writer.
        self._untidy = True
        self._open: _Open | None = None

    def open(self) -> None:
        """Create the directory, finish the files of dead writers, and delete files above the limit."""
        self._tidy_up()

    def write(self, lines: list[bytes], now: float) -> int:
        """Write a gzip member, entirely or not at all; raise StoreError."""
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
        """Finish a file that is large or old enough; raise StoreError."""
        opened, settings = self._open, self._settings
        self._tidy_up()
        if opened is None:
            return
        if opened.length >= settings.max_bytes or now - opened.began_at >= settings.max_age_seconds:
            self._end_file()

    def close(self) -> None:
        """Finish the open file; raise StoreError."""
        if self._open is not None:
            self._end_file()
        self._tidy_up()

    # --- the open file ------------------------------------------------------------------------------

    def _opened(self, now: float) -> _Open:
        """Return the open file, or a new file; raise StoreError, also if the open file was deleted."""
        try:
            if self._open is not None:
                self._ensure_there(self._open)
            else:
                self._open = self._new_file(now)
        except OSError as error:
            raise self._failure(error) from error
        return self._open

    def _ensure_there(self, opened: _Open) -> None:
        """Raise StoreError if the file was deleted or replaced."""
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
                # Before the lock another proxy may have treated the file as a dead writer's and deleted it.
                if lock(file) and same_file(file, path):
                    return _Open(file, path, now)
            except OSError:
                path.unlink()  # a file system without locks would fill up with empty files
                file.close()
                raise
            file.close()

    def _cut(self, opened: _Open) -> None:
        """Truncate a partial flush; leave a file that cannot be truncated to recovery."""
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
        """Clean up the directory if needed; errors are reported, since they must not keep events from being written."""
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
        self._delete_oldest_files()

    def _delete_oldest_files(self) -> None:
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
