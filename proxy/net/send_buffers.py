"""Give lookup-mode sockets their kernel send buffers, and count what the kernel may be made to hold in all of them.

A cgroup is charged for socket buffers. A relayed socket is never touched: a set buffer ends the kernel's autotuning.
"""

import socket
from pathlib import Path
from typing import Final, Protocol

from proxy.net.counters import NetCounters

TCP_WMEM: Final = Path("/proc/sys/net/ipv4/tcp_wmem")


class SocketOptionsOf(Protocol):
    """A socket as far as its options go: asyncio and uvloop give no more of it."""

    def setsockopt(self, level: int, name: int, value: int, /) -> None:
        """Set an option."""

    def getsockopt(self, level: int, name: int, /) -> int:
        """Read an option."""


class SendBuffers:
    """Count the send buffers of all lookup-mode connections in `counters.client_send_buffer_bytes`."""

    def __init__(self, counters: NetCounters, tcp_wmem: Path = TCP_WMEM) -> None:
        self._counters = counters
        self._tcp_wmem = tcp_wmem
        # One number object for all connections of the same size.
        self._sizes: dict[int, int] = {}

    def give(self, sock: SocketOptionsOf, wanted_bytes: int) -> int:
        """Set the buffer of `sock` (0: leave it to the kernel) and give what it may hold, to be taken back later.

        Linux doubles what it is given: the sum counts its own records too, so about half of it and more is data.
        """
        if wanted_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)
        size = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        if not wanted_bytes:
            size = max(size, self._autotuning_limit())
        size = self._sizes.setdefault(size, size)
        self._counters.client_send_buffer_bytes += size
        return size

    def take_back(self, size: int) -> None:
        """Count a connection no more: `size` is what `give` gave."""
        self._counters.client_send_buffer_bytes -= size

    def _autotuning_limit(self) -> int:
        try:
            return int(self._tcp_wmem.read_text().split()[2])
        except (OSError, ValueError, IndexError):
            return 0
