"""Read and write the files of lists on disk: blocking calls, for threads.

Bytes leave the page cache as soon as they are written or read: a cgroup is charged for the page cache, and the kernel
gives it back too late for a limit of a few hundred megabytes.
"""

import ctypes
import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

# The beginning of a file's name for the moment in which the file has a name.
NAME_PREFIX: Final = "pulsar-proxy-list-"
PAGE_BYTES: Final = 4096
# SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER: sync_file_range(2).
_WRITE_AND_WAIT: Final = 7
# Answers of file systems that know no O_TMPFILE: open(2).
_NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
_NOT_HERE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE})


class DiskRoom(NamedTuple):
    """The bytes that this user may still write to a file system, and the size of the file system."""

    free: int
    total: int


class DirectoryDisk:
    """A place for files without names: the directory that `directory` is a descriptor of.

    All methods may block, and raise OSError; each may be called in any thread.
    """

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._sync = _range_sync()

    def create(self) -> int:
        """Return the descriptor of a new, empty file that no other process can open."""
        fd = self._unnamed()
        if fd < 0:
            fd = self._unlinked()
        # Read-ahead would fill the page cache with bytes that are asked for seconds later.
        with suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def _unnamed(self) -> int:
        flags = os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(".", flags, 0o600, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
            return -1

    def _unlinked(self) -> int:
        name = NAME_PREFIX + secrets.token_hex(16)
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self._directory)
        try:
            os.unlink(name, dir_fd=self._directory)
        except FileNotFoundError:
            # Another proxy that has just started took the name for a leftover. The file is as good as unlinked.
            return fd
        except OSError:
            os.close(fd)
            raise
        return fd

    def write(self, fd: int, piece: memoryview, position: int) -> None:
        """Write all of `piece`; return when the bytes are on the disk and no longer in the page cache."""
        start, count = position, len(piece)
        while len(piece):
            written = os.pwrite(fd, piece, position)
            position += written
            piece = piece[written:]
        self._sync(fd, start, count)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, fd: int, position: int, count: int) -> bytes:
        """Return exactly `count` bytes, and drop their pages, those at both ends included."""
        found = os.pread(fd, count, position)
        while len(found) < count:
            more = os.pread(fd, count - len(found), position + len(found))
            if not more:
                raise OSError(errno.EIO, f"a list on disk ended early: got {len(found)} of {count} bytes")
            found += more
        start, end = position // PAGE_BYTES * PAGE_BYTES, -(-(position + count) // PAGE_BYTES) * PAGE_BYTES
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)
        return found

    def close(self, fd: int) -> None:
        """Close the file: its space is free when the call returns."""
        os.close(fd)

    def room(self) -> DiskRoom:
        """Return the room on the file system of the directory."""
        found = os.fstatvfs(self._directory)
        return DiskRoom(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def shut(self) -> None:
        """Close the directory; a second call does nothing."""
        directory, self._directory = self._directory, -1
        if directory >= 0:
            os.close(directory)


def _range_sync() -> Callable[[int, int, int], None]:
    """Return a function that waits until a range of a file is on the disk; the file's times may follow later."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return lambda fd, start, count: os.fdatasync(fd)
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def sync(fd: int, start: int, count: int) -> None:
        if call(fd, start, count, _WRITE_AND_WAIT) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NOT_HERE:
            raise OSError(number, os.strerror(number))
        os.fdatasync(fd)

    return sync
