"""The control socket: the Unix socket on which a running proxy serves its admin API to its own user.

Rules: only the proxy's user can open the socket, from the moment it exists. A command believes a process of
its own user or of root only: another user may have made a default path first.
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
from proxy.net.listen.unix_sockets import SocketFile, Taken, credentials_of, listen_at, refusal_of

NO_SOCKET: Final = "none"
BACKLOG: Final = 128
_KEY: Final = "controlSocketPath"
_PRIVATE: Final = 0o700
_OWNERS: Final = 0o600
_ROOT: Final = 0


class NotBelieved(OSError):
    """Another user's process may listen at a path."""


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


def connected(path: Path, seconds: float) -> socket.socket:
    """Return a connection to the proxy that listens at `path`; raises NotBelieved, and OSError."""
    if _is_default(path):
        _check_owner(path.parent)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(os.fspath(path))
        user = credentials_of(sock).uid
        if user not in _believed(path):
            raise NotBelieved(errno.EPERM, f"a process of another user ({user}) listens there")
    except BaseException:
        sock.close()
        raise
    return sock


def _believed(path: Path) -> set[int]:
    """Return the users whose processes are believed at a path."""
    own = os.geteuid()
    if own != _ROOT or _is_default(path):
        return {own, _ROOT}
    # Root names the socket of a proxy that runs as another user, in the directory of that user.
    return {own, path.parent.stat().st_uid}


def _is_default(path: Path) -> bool:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return path.parent == _own_directory(os.environ) or bool(runtime and path.parent == Path(runtime))


class ControlSocket:
    """A listening socket at `path`."""

    def __init__(self, listening: socket.socket, path: Path) -> None:
        self.listening = listening
        self._file = SocketFile(path)

    @property
    def path(self) -> Path:
        """The path where clients find the socket."""
        return self._file.path

    def move_aside(self) -> Path:
        """Leave the path to the process that takes over, and return the path from now on; raises OSError."""
        self._file.move(self.path.with_name(f"{self.path.name}.{os.getpid()}"))
        return self.path

    def close(self) -> None:
        """Stop listening, and remove the file if it is still this socket; a second call does nothing."""
        self.listening.close()
        self._file.remove()


def open_control(setting: str, port: int, log: Logger) -> ControlSocket | None:
    """Listen on `controlSocketPath`; return None if it is `none`, or if no default path can be used.

    Raises OSError naming the key if the path it sets cannot be used, or if another proxy is listening there.
    """
    problem: OSError | None = None
    for path in control_paths(setting, port, os.environ):
        try:
            listening = _listen(path, own_directory=not setting)
        except Taken:
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


def _listen(path: Path, *, own_directory: bool) -> socket.socket:
    if own_directory:
        try:
            _check_directory(path.parent)
        except OSError as error:
            raise refusal_of(path, _KEY, error) from error
    return listen_at(path, _OWNERS, _KEY, BACKLOG)


def _check_directory(directory: Path) -> None:
    """Check that only this user can write to a default directory; create it below the temporary directory."""
    if directory == _own_directory(os.environ):
        with suppress(FileExistsError):
            directory.mkdir(_PRIVATE)
    _check_owner(directory)


def _check_owner(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise NotBelieved(errno.EPERM, f"expected {directory} to be a directory that only its owner writes to")
