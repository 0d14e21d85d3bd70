"""Open the directory for lists on disk, or refuse it with the reason.

Topic names lie there as plain text, so nobody else may look into it; and a list that is "on disk" in memory, or behind
a network, would be no gain: a tmpfs is memory of the same container, and a server that does not answer stops threads.
"""

import ctypes
import os
import stat
from contextlib import suppress
from typing import Final

from proxy.auth.failures import SettingFault
from proxy.config.config import Config
from proxy.net.spill.disk import NAME_PREFIX, DirectoryDisk

# statfs(2) and the kernel's magic.h. A file system that is not named here is taken for a local disk.
MEMORY: Final = {0x01021994: "tmpfs", 0x858458F6: "ramfs", 0x958458F6: "hugetlbfs", 0x9FA0: "proc", 0x62656572: "sysfs"}
NETWORK: Final = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x65735546: "fuse",
    0x00C36400: "ceph",
    0x01021997: "9p",
    0x5346414F: "afs",
    0x6B414653: "afs",
    0x73757245: "coda",
    0x564C: "ncp",
    0x0BD00BD0: "lustre",
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
    0x19830326: "beegfs",
    0x47504653: "gpfs",
    0x20030528: "orangefs",
    0x786F4256: "vboxsf",
    0xAAD7AAEA: "panfs",
}
_STATFS_BYTES: Final = 256
KEY: Final = Config.topic_list_spill_directory.name


def open_directory(path: str) -> DirectoryDisk:
    """Return the directory, made if only its last part is missing, without leftovers; raises SettingFault."""
    directory = _opened(path, make=True)
    try:
        check_directory(directory, path)
        disk = DirectoryDisk(directory)
        _write_one(disk, path)
        remove_leftovers(directory)
    except BaseException:
        os.close(directory)
        raise
    return disk


def check_path(path: str) -> None:
    """Raise SettingFault if the proxy would not start with this directory; nothing is made or removed."""
    parent = os.path.dirname(os.path.normpath(path))
    if os.path.isabs(path) and not os.path.lexists(path) and os.access(parent, os.W_OK | os.X_OK):
        return
    directory = _opened(path, make=False)
    try:
        check_directory(directory, path)
    finally:
        os.close(directory)


def _opened(path: str, *, make: bool) -> int:
    if not os.path.isabs(path):
        raise SettingFault(KEY, f"got {path!r}, expected an absolute path")
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SettingFault(KEY, f"got {path!r}, expected a directory of this user: {error.strerror}") from error


def check_directory(directory: int, path: str, magic: int | None = None) -> None:
    """Raise SettingFault if an open directory must not be used; `magic` is its file system's, asked for if None."""
    found = os.fstat(directory)
    if found.st_uid != os.geteuid():
        raise SettingFault(KEY, f"{path!r} is owned by user {found.st_uid}, expected {os.geteuid()}, the proxy's user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        raise SettingFault(KEY, f"{path!r} has mode {mode:04o}, expected one that only its owner may write to, as 0700")
    magic = filesystem_magic(directory) if magic is None else magic
    if magic in MEMORY:
        raise SettingFault(KEY, f"{path!r} is on {MEMORY[magic]}, which is memory, expected a local disk")
    if magic in NETWORK:
        raise SettingFault(KEY, f"{path!r} is on {NETWORK[magic]}, which may stop to answer, expected a local disk")


def filesystem_magic(directory: int) -> int:
    """Return the kernel's number for the kind of file system; 0 if the kernel does not say."""
    # The first field of struct statfs is f_type, a long on all 64-bit machines but s390x.
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    try:
        if ctypes.CDLL(None, use_errno=True).fstatfs(directory, buffer) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def _write_one(disk: DirectoryDisk, path: str) -> None:
    """Write a page and read it back: a read-only or full disk is told at the start, not under load."""
    piece = bytes(range(256)) * 16
    try:
        fd = disk.create()
        try:
            disk.write(fd, memoryview(piece), 0)
            found = disk.read(fd, 0, len(piece))
        finally:
            disk.close(fd)
    except OSError as error:
        raise SettingFault(KEY, f"{path!r} cannot be written to: {error.strerror}") from error
    if found != piece:
        raise SettingFault(KEY, f"{path!r} gives back other bytes than were written to it")


def remove_leftovers(directory: int) -> int:
    """Remove files that an earlier proxy has left with a name; return how many."""
    removed = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(NAME_PREFIX) or not entry.is_file(follow_symlinks=False):
                continue
            # Another proxy in the same directory may have unlinked its file meanwhile.
            with suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=directory)
                removed += 1
    return removed
