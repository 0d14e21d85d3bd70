"""The listening sockets of a process: made here, or taken over from systemd or from the proxy that ran before.

Rule: a socket that was handed over is found by its address, never bound again, so that clients who wait in its backlog
are served and none is refused. A socket that was handed over and is not wanted is closed when all ports are open.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.host_port import host_port
from proxy.net.listen.accept_loop import receive_is_set, restore_receive
from proxy.net.listen.unix_sockets import SocketFile, listen_at

# Ports that the kernel chose for the first address and that others have on the next one, in a row.
ATTEMPTS: Final = 16

# Sets options that accepted sockets inherit.
Prepare = Callable[[socket.socket], None]


@dataclass(frozen=True, slots=True)
class PortPurpose:
    """The configuration key of a listening socket, and the broker to which its clients are relayed ("": any)."""

    key: str
    target: str = ""
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """A listening socket that another process has handed over; systemd does not tell the purpose.

    `removes`: the file of a Unix socket is removed when this process ends.
    """

    listening: socket.socket
    purpose: PortPurpose | None = None
    removes: bool = False

    @property
    def place(self) -> str:
        """The address, for people."""
        return place_of(self.listening)


class ListeningSockets:
    """Opens listening sockets for their owners, who close them, and knows all that are open."""

    def __init__(self, handed: Iterable[Handed] = ()) -> None:
        self._handed: list[Handed] = []
        self._open: list[Handed] = []
        self._files: list[SocketFile] = []
        self.inherit(handed)

    def inherit(self, handed: Iterable[Handed]) -> None:
        """Take the sockets that another process has handed over, before the first one is opened."""
        self._handed += handed

    @property
    def broker_ports(self) -> Sequence[Handed]:
        """The ports handed over that lead to one broker, and that nobody has asked for yet."""
        return [each for each in self._handed if each.purpose is not None and each.purpose.target]

    def listen(
        self, hosts: Sequence[str], port: int, purpose: PortPurpose, backlog: int, prepare: Prepare | None = None
    ) -> list[socket.socket]:
        """Listen on a port of each address, for port 0 on the same free one; raises OSError with address and key."""
        attempts = ATTEMPTS if port == 0 and len(hosts) > 1 else 1
        for attempt in range(1, attempts + 1):
            try:
                return self._listen(hosts, port, purpose, backlog, prepare)
            except OSError:
                if attempt == attempts:
                    raise
        raise AssertionError

    def _listen(
        self, hosts: Sequence[str], port: int, purpose: PortPurpose, backlog: int, prepare: Prepare | None
    ) -> list[socket.socket]:
        opened: list[socket.socket] = []
        try:
            for host in hosts:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                listening = self._taken_over(family, host, port, purpose, backlog, prepare)
                if listening is None:
                    # An address of IPv6 also takes clients of IPv4, unless these have an address of their own.
                    alone = family == socket.AF_INET6 and any(":" not in other for other in hosts)
                    listening = _bound(family, host, port, purpose.key, backlog, prepare, only_ipv6=alone)
                opened.append(listening)
                port = port_of(listening)
        except OSError:
            for listening in opened:
                listening.close()
            raise
        self._open += [Handed(listening, purpose) for listening in opened]
        return opened

    def listen_at(self, path: str, mode: int, purpose: PortPurpose, backlog: int) -> socket.socket:
        """Listen on a Unix socket; raises OSError with path and key."""
        found = next((each for each in self._handed if _is_at(each.listening, path)), None)
        if found is None:
            found = Handed(listen_at(Path(path), mode, purpose.key, backlog), purpose, removes=True)
        else:
            self._handed.remove(found)
            found.listening.setblocking(False)
            found.listening.listen(backlog)
            found = Handed(found.listening, purpose, found.removes)
        if found.removes:
            self._files.append(SocketFile(Path(path)))
        self._open.append(found)
        return found.listening

    def opened(self) -> Iterator[Handed]:
        """Yield all sockets that are open, for the process that takes over."""
        self._open = [each for each in self._open if each.listening.fileno() >= 0]
        yield from self._open

    def hand_over(self) -> None:
        """Leave the files of Unix sockets to the process that has taken over."""
        self._files.clear()

    def remove_files(self) -> None:
        """Remove the files of Unix sockets."""
        for file in self._files:
            file.remove()

    def close_unused(self) -> list[str]:
        """Close what was handed over and is not used, and return the addresses."""
        unused, self._handed = self._handed, []
        places = [each.place for each in unused]
        for each in unused:
            each.listening.close()
        return places

    def _taken_over(
        self, family: int, host: str, port: int, purpose: PortPurpose, backlog: int, prepare: Prepare | None
    ) -> socket.socket | None:
        """Return the socket of that address that was handed over; port 0 stands for a port with the same purpose."""
        for each in self._handed:
            if each.listening.family != family or not _same_host(host, each.listening.getsockname()[0]):
                continue
            if port_of(each.listening) == port or (port == 0 and each.purpose == purpose):
                self._handed.remove(each)
                listening = each.listening
                _unbound(listening)
                if prepare is not None:
                    prepare(listening)
                listening.setblocking(False)
                listening.listen(backlog)
                return listening
        return None


def place_of(listening: socket.socket) -> str:
    """Return the address of a listening socket as text; empty if it is closed."""
    try:
        address = listening.getsockname()
    except OSError:
        return ""
    return host_port(address[0], address[1]) if isinstance(address, tuple) else str(address)


def port_of(listening: socket.socket) -> int:
    """Return the port of a listening socket, 0 for a Unix socket."""
    address = listening.getsockname()
    return int(address[1]) if isinstance(address, tuple) else 0


def _bound(
    family: int, host: str, port: int, key: str, backlog: int, prepare: Prepare | None, *, only_ipv6: bool
) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if only_ipv6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if prepare is not None:
            prepare(listening)
        listening.setblocking(False)
        listening.bind((host, port))
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        text = (error.strerror or "").lower()
        raise OSError(error.errno, f"cannot listen on {host_port(host, port)} ({key}): {text}") from error
    return listening


def _unbound(listening: socket.socket) -> None:
    """Return a receive buffer that the other process has bounded to the kernel, as far as it can be."""
    with suppress(OSError):
        if receive_is_set(listening):
            with socket.socket(listening.family, socket.SOCK_STREAM) as fresh:
                restore_receive(listening, fresh.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))


def _same_host(host: str, bound: str) -> bool:
    if host == bound:
        return True
    with suppress(OSError, ValueError):
        found = socket.gethostbyname(host) if ":" not in host else host
        return ipaddress.ip_address(found) == ipaddress.ip_address(bound)
    return False


def _is_at(listening: socket.socket, path: str) -> bool:
    return listening.family == socket.AF_UNIX and listening.getsockname() == path
