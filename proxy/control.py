"""The control socket: a Unix socket of the operator's own, on which a running proxy says how it is.

Rule: it can be opened by the proxy's own user alone, from its first moment on; it costs the proxy a bounded number of
connections, bytes and seconds, whatever happens at its other end. One line of JSON in (`{"show": "top"}`, or
`{"change": "log-level", ...}`), one line out, then the end.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import orjson

from proxy.log import Logger

NO_SOCKET: Final = "none"
VERSION: Final = 1
MOST_CONNECTIONS: Final = 4
LONGEST_REQUEST_BYTES: Final = 1024
# For the whole exchange: a reader that is slower than this is cut.
EXCHANGE_SECONDS: Final = 5.0
_KEY: Final = "controlSocketPath"
_LONGEST_PATH_BYTES: Final = 107  # sockaddr_un of Linux, less the 0 at its end
_PRIVATE: Final = 0o700

Show = Callable[[], Mapping[str, object]]
# Gets the whole request; raises ValueError with a text for who asked.
Change = Callable[[Mapping[str, Any]], Mapping[str, object]]
Report = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True)
class Answers:
    """What may be asked for, by name: documents to show, and things to change."""

    show: Mapping[str, Show]
    change: Mapping[str, Change] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """Name every request there is."""
        kinds = (("show", self.show), ("change", self.change))
        return ", ".join(f'{{"{kind}": "{name}"}}' for kind, names in kinds for name in names)

    def find(self, request: Mapping[str, Any]) -> tuple[str, Callable[[], Mapping[str, object]]] | None:
        """Give the name of what is asked for, and how to have it; None if there is no such thing."""
        for kind, names in (("show", self.show), ("change", self.change)):
            name = request.get(kind)
            if isinstance(name, str) and name in names:
                return name, self.show[name] if kind == "show" else partial(self.change[name], request)
        return None


def control_paths(setting: str, port: int, environ: Mapping[str, str]) -> Iterator[Path]:
    """Give the places where the socket may be, best first; none if the key says `none`.

    `port` is the one that clients are served on (`Config.client_port`). Without a path in the key: `XDG_RUNTIME_DIR`, then a directory of the
    user's own under the temporary one.
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
    # The tempfile module would say the same, for 9 ms of the start.
    return Path(environ.get("TMPDIR") or "/tmp", f"pulsar-proxy-{os.getuid()}")


class ControlSocket:
    """A socket that is being listened on."""

    def __init__(self, server: asyncio.AbstractServer, path: Path, exchanges: "set[_Exchange]") -> None:
        self._server = server
        self._exchanges = exchanges
        self._identity = _identity(path)
        self.path = path

    def close(self) -> None:
        """End all exchanges, and remove the socket if it is still this one; a second call does nothing."""
        self._server.close()
        for exchange in list(self._exchanges):
            exchange.abort()
        if self._identity is not None and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)


async def open_control(
    loop: asyncio.AbstractEventLoop, setting: str, port: int, answers: Answers, log: Logger, report: Report
) -> ControlSocket | None:
    """Listen where `controlSocketPath` says; None if it says `none`, or if none of the default places can be used.

    `report` hears of it when one of `answers` fails. Raises OSError naming the key if the path it sets cannot be used,
    or if another proxy is listening there.
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
        exchanges: set[_Exchange] = set()
        server = await loop.create_unix_server(partial(_Exchange, loop, answers, report, exchanges), sock=listening)
        return ControlSocket(server, path, exchanges)
    if problem is not None:
        # Nobody asked for it by name: a container without a writable directory is no reason not to serve.
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
            raise OSError(errno.ENAMETOOLONG, f"at most {_LONGEST_PATH_BYTES} bytes are possible")
        if own_directory:
            _check_directory(path.parent)
        _clear(path)
        # The mode of a socket is fixed by bind(): a chmod afterwards would leave a moment in which others get in.
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(MOST_CONNECTIONS)
    except _Taken:
        listening.close()
        raise
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"cannot listen on {path} ({_KEY}): {reason}") from error
    return listening


def _check_directory(directory: Path) -> None:
    """See that a default directory belongs to nobody else; the one under the temporary directory is made."""
    if directory == _own_directory(os.environ):
        with suppress(FileExistsError):
            directory.mkdir(_PRIVATE)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise OSError(errno.EPERM, f"expected {directory} to be a directory that only its owner writes to")


def _clear(path: Path) -> None:
    """Remove the socket of a proxy that is dead; raises OSError for a live one and for anything but a socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "expected a socket or nothing there, got a file of another kind")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refused = probe.connect_ex(str(path))
    if refused == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif refused in (0, errno.EAGAIN):
        raise _Taken(errno.EADDRINUSE, f"another process listens on {path}: expected a path of its own ({_KEY})")
    elif refused != errno.ENOENT:
        raise OSError(refused, os.strerror(refused))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Exchange(asyncio.Protocol):
    """One request and its answer; whatever the other side does, it is over after `EXCHANGE_SECONDS`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answers: Answers, report: Report, exchanges: "set[_Exchange]"
    ) -> None:
        self._loop = loop
        self._answers = answers
        self._report = report
        self._exchanges = exchanges
        self._request = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if len(self._exchanges) >= MOST_CONNECTIONS:
            # So little fits into the kernel's buffer: nothing is kept for one that does not read.
            self._reply({"error": f"as many as may ask at once ({MOST_CONNECTIONS}) are asking already"})
            return
        self._exchanges.add(self)
        self._timer = self._loop.call_later(EXCHANGE_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._request += data[: LONGEST_REQUEST_BYTES + 1 - len(self._request)]
        if b"\n" in self._request:
            self._answer(bytes(self._request).partition(b"\n")[0])
        elif len(self._request) > LONGEST_REQUEST_BYTES:
            self._reply({"error": f"expected a line of at most {LONGEST_REQUEST_BYTES} bytes"})

    def eof_received(self) -> bool:
        # A client that sends no more still reads its answer, if there is one under way.
        return self._transport is not None and self._transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._exchanges.discard(self)
        self._transport = None

    def abort(self) -> None:
        """End the exchange at once."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, line: bytes) -> None:
        try:
            request: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            self._reply({"error": "expected a line of JSON"})
            return
        found = self._answers.find(request) if isinstance(request, dict) else None
        if found is None:
            self._reply({"error": f"expected {self._answers.expected}"})
            return
        name, give = found
        try:
            given = give()
        except ValueError as error:
            self._reply({"error": str(error)})
        except Exception as error:
            self._report(error)
            self._reply({"error": "internal error, see the proxy's log"})
        else:
            self._reply({name: given})

    def _reply(self, answer: Mapping[str, object]) -> None:
        assert self._transport is not None
        self._request.clear()
        self._transport.write(orjson.dumps({"version": VERSION, **answer}, default=str) + b"\n")
        # Closed when all of it has left; the timer is for those who do not take it.
        self._transport.close()
