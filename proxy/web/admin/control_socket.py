"""The control socket: the Unix socket on which a running proxy serves its admin API to its own user.

Rule: only the proxy's user can open the socket, from the moment it exists.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.core.log import Logger

NO_SOCKET: Final = "none"
BACKLOG: Final = 128
_KEY: Final = "controlSocketPath"
_LONGEST_PATH_BYTES: Final = 107  # sun_path of Linux, without the terminating 0
_PRIVATE: Final = 0o700


def control_paths(setting: str, port: int, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths where the socket may be, best first; no path if `controlSocketPath=none`.

    `port` is the clients' port. If the key is empty, these are `XDG_RUNTIME_DIR`, then a directory of this user below
    the temporary directory.
    """
    if setting == NO_SOCKET:
        return
    if setting:
        yield Path(setting)
        return
    name = f"pulsar-proxy-{port}.sock"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, name)
    yield _own_directory(environ) / name


def _own_directory(environ: Mapping[str, str]) -> Path:
    # The tempfile module returns the same directory, but its import costs 9 ms of the start.
    return Path(environ.get("TMPDIR") or "/tmp", f"pulsar-proxy-{os.getuid()}")


class ControlSocket:
    """A listening socket at `path`."""

    def __init__(self, listening: socket.socket, path: Path) -> None:
        self.listening = listening
        self._identity = _identity(path)
        self.path = path

    def close(self) -> None:
        """Stop listening, and remove the file if it is still this socket; a second call does nothing."""
        self.listening.close()
        if self._identity is not None and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)


def open_control(setting: str, port: int, log: Logger) -> ControlSocket | None:
    """Listen on `controlSocketPath`; return None if it is `none`, or if no default path can be used.

    Raises OSError naming the key if the path it sets cannot be used, or if another proxy is listening there.
    """
    problem: OSError | None = None
    for path in control_paths(setting, port, os.environ):
        try:
            listening = _listen(path, own_directory=not setting)
        except _Taken:
            raise
        except OSError as error:
            if setting:
                raise
            problem = error
            continue
        log.info("listening for control", path=str(path))
        return ControlSocket(listening, path)
    if problem is not None:
        # No path was configured: a container without a writable directory is no reason not to serve.
        log.warning("no control socket", detail=str(problem.strerror))
    return None


class _Taken(OSError):
    """Another process is listening there."""


def _listen(path: Path, *, own_directory: bool) -> socket.socket:
    """Bind and listen in one step of the loop, so that another start finds either nothing or a live socket."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, f"expected at most {_LONGEST_PATH_BYTES} bytes")
        if own_directory:
            _check_directory(path.parent)
        _clear(path)
        # The mode of a socket is fixed by bind(): a chmod afterwards would leave a moment in which others get in.
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
    except _Taken:
        listening.close()
        raise
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"cannot listen on {path} ({_KEY}): {reason}") from error
    return listening


def _check_directory(directory: Path) -> None:
    """Check that only this user can write to a default directory; create it below the temporary directory."""
    if directory == _own_directory(os.environ):
        with suppress(FileExistsError):
            directory.mkdir(_PRIVATE)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise OSError(errno.EPERM, f"expected {directory} to be a directory that only its owner writes to")


def _clear(path: Path) -> None:
    """Remove the socket of a dead process; raises OSError for a live socket and for any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "expected a socket or no file, got a file of another kind")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refused = probe.connect_ex(str(path))
    if refused == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif refused in (0, errno.EAGAIN):
        raise _Taken(errno.EADDRINUSE, f"another process listens on {path}: give each proxy a path of its own ({_KEY})")
    elif refused != errno.ENOENT:
        raise OSError(refused, os.strerror(refused))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
