"""Listening sockets that this process need not open: systemd has opened them, or a proxy that runs hands them over.

Rules: what systemd has opened is known by `LISTEN_FDS` (sd_listen_fds(3)) and found by its address. A proxy that hands
over goes on accepting until this one is ready and says so: if this one fails before, nobody notices. Both are asked
before the event loop runs, so that calls may wait here.
"""

import os
import socket
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.net.listen.listening import Handed, PortPurpose
from proxy.net.listen.unix_sockets import answers, credentials_of
from proxy.web.admin.control_socket import NotBelieved, connected, control_paths

if TYPE_CHECKING:
    from proxy.cli.admin.client import AdminClient

FIRST_DESCRIPTOR: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
HAND_OVER_SECONDS: Final = 10.0
LOOK_AGAIN_SECONDS: Final = 0.1
# The kernel passes no more at once (SCM_MAX_FD).
_MOST_AT_ONCE: Final = 253
_ROOT: Final = 0


class TakeOverFailed(Exception):
    """A proxy runs, but does not hand its sockets over; the text says why and what to do."""


class Predecessor:
    """The proxy that has handed its sockets over and accepts beside this one until `leave`."""

    def __init__(self, client: "AdminClient", name: str, document: Mapping[str, Any]) -> None:
        self._client = client
        self._name = name
        self.pid = int(document["pid"])
        self.budget_bytes = int(document["budget_bytes"])

    def leave(self) -> int:
        """Send the drain: the process accepts no more. Return how many clients the process has, 0 without a process.

        Raises TakeOverFailed.
        """
        from proxy.cli.admin.client import NoAnswer, Refused

        ends = monotonic() + HAND_OVER_SECONDS
        while True:
            try:
                found = self._client.ask("POST", "/v1/hand-over/done", {"to": self._name}, HAND_OVER_SECONDS)
                return int(found.get("connections", 0))
            except Refused as error:
                raise TakeOverFailed(f"process {self.pid} goes on: {error}") from error
            except NoAnswer as error:
                # A process that has ended by itself leaves everything to this process all the same. A process that
                # lives is about to end, or its path is about to be that of another process.
                if not _lives(self.pid):
                    return 0
                if monotonic() > ends:
                    raise TakeOverFailed(str(error)) from error
            sleep(LOOK_AGAIN_SECONDS)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class Inherited:
    """The sockets, and the process that has handed some of them over; None if none has."""

    handed: list[Handed] = field(default_factory=list)
    predecessor: Predecessor | None = None


def inherited_of(config: Config, environ: MutableMapping[str, str], log: Logger, *, take_over: bool) -> Inherited:
    """Return what systemd has opened, and with `take_over` what the proxy that runs has; raises TakeOverFailed."""
    handed = list(sockets_of_systemd(environ, os.getpid(), log))
    if not take_over:
        return Inherited(handed)
    paths = control_paths(config.control_socket_path, config.client_port, environ)
    live = next((path for path in paths if answers(path) and _is_own(path, log)), None)
    if live is None:
        log.info("nobody to take over from", key=Config.control_socket_path.name)
        return Inherited(handed)
    predecessor, theirs = take_over_from(live)
    log.info("taking over", pid=predecessor.pid, path=str(live))
    return Inherited([*handed, *theirs], predecessor)


def _is_own(path: Path, log: Logger) -> bool:
    """Return whether the proxy at a path may be of this user; an error that does not say counts as one."""
    try:
        connected(path, LOOK_AGAIN_SECONDS).close()
    except NotBelieved as error:
        log.warning("nothing is taken over from another user's process", path=str(path), detail=str(error.strerror))
        return False
    except OSError:
        return True
    return True


def sockets_of_systemd(environ: MutableMapping[str, str], pid: int, log: Logger) -> Iterator[Handed]:
    """Yield the sockets that are for the process `pid`, and take the variables away: children would believe them."""
    given = {name: environ.pop(name) for name in _VARIABLES if name in environ}
    count = given.get("LISTEN_FDS", "")
    if given.get("LISTEN_PID") != str(pid) or not (count.isascii() and count.isdigit()):
        return
    for number in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        try:
            os.set_inheritable(number, False)
            found = socket.socket(fileno=number)
        except OSError as error:
            log.warning("a descriptor of systemd is no socket", detail=f"{number}: {error.strerror}")
            continue
        if _listens(found):
            yield Handed(found)
        else:
            log.warning("a socket of systemd does not listen for streams", detail=str(number))
            found.close()


def _listens(found: socket.socket) -> bool:
    with suppress(OSError):
        stream = found.type == socket.SOCK_STREAM and found.family in _FAMILIES
        return stream and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


def take_over_from(path: Path) -> tuple[Predecessor, list[Handed]]:
    """Return the proxy that listens at a control socket, and its sockets; raises TakeOverFailed."""
    from proxy.cli.admin.client import AdminClient, NoAnswer, Refused

    client = AdminClient([path])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
        # The kernel chooses a name in the abstract namespace, which no file is left of.
        waiting.bind("")
        waiting.listen(1)
        name = f"@{waiting.getsockname()[1:].decode('ascii')}"
        try:
            document = client.ask("POST", "/v1/hand-over", {"to": name}, HAND_OVER_SECONDS)
            descriptors = _received(waiting, len(document["sockets"]))
            return Predecessor(client, name, document), list(_handed(document["sockets"], descriptors))
        except Refused as error:
            hint = "it has another version" if error.status == 404 else str(error)
            raise TakeOverFailed(f"the proxy at {path} hands nothing over: {hint}") from error
        except NoAnswer as error:
            raise TakeOverFailed(str(error)) from error
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise TakeOverFailed(f"got no sockets from the proxy at {path}: {error}") from error


def _received(waiting: socket.socket, count: int) -> list[int]:
    """Return the descriptors that a process of this user or of root sends; raises OSError."""
    ends = monotonic() + HAND_OVER_SECONDS
    while True:
        waiting.settimeout(max(0.1, ends - monotonic()))
        sender, _ = waiting.accept()
        with sender:
            # Anybody on this machine may connect to such a name.
            if credentials_of(sender).uid in (os.geteuid(), _ROOT):
                sender.settimeout(max(0.1, ends - monotonic()))
                return _descriptors(sender, count)


def _descriptors(sender: socket.socket, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        # The flags of the call do nothing (CPython 3.11): the descriptors come without close-on-exec.
        piece, some, _, _ = socket.recv_fds(sender, 1, _MOST_AT_ONCE)
        for number in some:
            os.set_inheritable(number, False)
        found += some
        if not piece:
            break
    if len(found) != count:
        for number in found:
            os.close(number)
        raise OSError(f"expected {count} sockets, got {len(found)}")
    return found


def _handed(rows: Sequence[Mapping[str, Any]], descriptors: Sequence[int]) -> Iterator[Handed]:
    for row, number in zip(rows, descriptors, strict=True):
        purpose = PortPurpose(str(row["key"]), str(row["broker"]), bool(row["tls"]))
        yield Handed(socket.socket(fileno=number), purpose, bool(row["removes_file"]))
