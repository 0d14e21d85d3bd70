"""Set the kernel send buffers of lookup-mode sockets, and count how much memory all of them may take.

Socket buffers are charged to the container's cgroup. Relayed sockets are left alone: setting a size ends the kernel's
autotuning.
"""

import socket
from pathlib import Path
from typing import Final, Protocol

from proxy.net.counters import NetCounters

TCP_WMEM: Final = Path("/proc/sys/net/ipv4/tcp_wmem")


class SocketOptionsOf(Protocol):
    """The socket interface that asyncio and uvloop expose: its options."""

    def setsockopt(self, level: int, name: int, value: int, /) -> None:
        """Set the option."""

    def getsockopt(self, level: int, name: int, /) -> int:
        """Return the value of the option."""


class SendBuffers:
    """Count the send buffers of all lookup-mode connections in `counters.client_send_buffer_bytes`."""

    def __init__(self, counters: NetCounters, tcp_wmem: Path = TCP_WMEM) -> None:
        self._counters = counters
        self._tcp_wmem = tcp_wmem
        # Connections with buffers of the same size share one int object: each of them keeps its size.
        self._sizes: dict[int, int] = {}

    def assign(self, sock: SocketOptionsOf, wanted_bytes: int) -> int:
        """Set the send buffer of `sock` (0: leave it to the kernel), count it, and return how much it may hold.

        Linux doubles the size that is set: the returned size includes the kernel's bookkeeping, about half of it is
        data.
        """
        if wanted_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)
        size = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        if not wanted_bytes:
            size = max(size, self._autotuning_limit())
        size = self._sizes.setdefault(size, size)
        self._counters.client_send_buffer_bytes += size
        return size

    def release(self, size: int) -> None:
        """Subtract the `size` that `assign` returned: its connection has ended."""
        self._counters.client_send_buffer_bytes -= size

    def _autotuning_limit(self) -> int:
        try:
            return int(self._tcp_wmem.read_text().split()[2])
        except (OSError, ValueError, IndexError):
            return 0
