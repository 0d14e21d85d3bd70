"""Unix sockets at paths: made with their mode from the first moment, and removed only by the process that listens.

Rule: the socket of a dead process is replaced, that of a living one never, and a file of another kind never.
"""

import errno
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

LONGEST_PATH_BYTES: Final = 107  # sun_path of Linux, without the terminating 0
_PEER: Final = struct.Struct("3i")  # struct ucred of Linux: pid, uid, gid
_ALL: Final = 0o777


class PeerCredentials(NamedTuple):
    """The process at the other end of a Unix socket, as the kernel knows it."""

    pid: int
    uid: int
    gid: int


class Taken(OSError):
    """Another process is listening there."""


class SocketFile:
    """The file of a Unix socket, which `remove` deletes if it is still that socket's."""

    def __init__(self, path: Path) -> None:
        self._identity = _identity(path)
        self.path = path

    def move(self, path: Path) -> None:
        """Rename the socket; clients find the socket there from now on. Raises OSError."""
        if self._identity is not None and _identity(self.path) == self._identity:
            self.path.rename(path)
        self.path = path

    def remove(self) -> None:
        """Remove the file; a second call does nothing."""
        if self._identity is not None and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)


def listen_at(path: Path, mode: int, key: str, backlog: int) -> socket.socket:
    """Bind and listen in one step, so that another start finds either nothing or a live socket.

    Raises Taken if a process listens there, and OSError that names the path and the key for all else.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, f"expected at most {LONGEST_PATH_BYTES} bytes")
        _clear(path, key)
        # The mode of a socket is fixed by bind(): a chmod afterwards would leave a moment in which others get in.
        before = os.umask(_ALL & ~mode)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(backlog)
    except Taken:
        listening.close()
        raise
    except OSError as error:
        listening.close()
        raise refusal_of(path, key, error) from error
    return listening


def refusal_of(path: Path, key: str, error: OSError) -> OSError:
    """Return the error for an operator: path, key and reason."""
    reason = (error.strerror or str(error)).lower()
    return OSError(error.errno, f"cannot listen on {path} ({key}): {reason}")


def credentials_of(sock: socket.socket) -> PeerCredentials:
    """Return the process that connected, or that listens; raises OSError."""
    return PeerCredentials(*_PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)))


def client_name(sock: socket.socket) -> str:
    """Return what stands for the address of a client of a Unix socket: its user."""
    with suppress(OSError):
        return f"unix:{credentials_of(sock).uid}"
    return "unix"


def _clear(path: Path, key: str) -> None:
    """Remove the socket of a dead process; raises OSError for a live socket and for any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "expected a socket or no file, got a file of another kind")
    refused = _try(path)
    if refused == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif refused in (0, errno.EAGAIN):
        raise Taken(errno.EADDRINUSE, f"another process listens on {path}: give each proxy a path of its own ({key})")
    elif refused != errno.ENOENT:
        raise OSError(refused, os.strerror(refused))


def answers(path: Path) -> bool:
    """Return whether a process listens at a path; an error that does not say counts as one."""
    return _try(path) not in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)


def _try(path: Path) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
