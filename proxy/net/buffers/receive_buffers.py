"""The kernel receive buffers of request connections: small, and large once a large answer is read (docs/adr/0066).

Rules:
- A connection is made with the large buffer, so that its window can be large, and begins to work with the small one.
- A connection gets the large buffer with the first large answer that there is memory for, as long as the sum of all has
  room, and keeps that until another connection needs the memory. Without room the answer is read through the small one.
- Only a connection with no question under way and nothing unread gives its large buffer back: the broker was told of
  the window, and may use what it was told.
"""

import socket
from typing import Any, Final, Protocol

from proxy.config.values import SMALL_RECEIVE_BUFFER_BYTES
from proxy.net.buffers.kernel_memory import KernelMemory

# A limit that was lowered is applied at once to so many connections that rest.
_TRIMS: Final = 1000


class Reader(Protocol):
    """The part of a connection that its buffer needs (`proxy.brokers.connection.BrokerConnection`)."""

    @property
    def quiet(self) -> bool:
        """Return whether no question is under way and nothing is unread."""

    def own_socket(self) -> Any:
        """Return the connection's socket; None if that is gone."""


class ReceiveBuffer:
    """The buffer of one connection; `announced_bytes` is the size of the answer that has begun to arrive."""

    __slots__ = ("_all", "_large", "_reader", "announced_bytes", "booked_bytes")

    def __init__(self, of_all: "ReceiveBuffers", reader: Reader) -> None:
        self._all = of_all
        self._reader = reader
        self._large = False
        self.announced_bytes = self.booked_bytes = 0

    def begin(self) -> None:
        """Set the small buffer if there is a sum, else keep the large one: the connection is there."""
        if self._all.memory.limit_bytes is None:
            self._have_large()
        else:
            self.shrink()

    def answer_begins(self) -> None:
        """Set the large buffer for a large answer that is read now, if the sum has room."""
        if not self._large and self.announced_bytes > SMALL_RECEIVE_BUFFER_BYTES and self._have_large():
            self._set(self._all.large_bytes)

    def close(self) -> None:
        """Release everything: the connection is gone."""
        self._all.memory.release(self)

    def _have_large(self) -> bool:
        memory, beyond = self._all.memory, 2 * (self._all.large_bytes - SMALL_RECEIVE_BUFFER_BYTES)
        self._large = beyond > 0 and memory.take(self, beyond)
        if self._large:
            memory.resting[self] = None
        return self._large

    def _set(self, size: int) -> None:
        own = self._reader.own_socket()
        if own is None:
            return
        try:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        except OSError:
            # The connection has ended, and its loss will be told.
            return

    # --- for the book (kernel_memory.BufferHolder) ------------------------------------------------------

    def spare(self) -> bool:
        """Return whether the broker sends nothing now."""
        return self._reader.quiet

    def shrink(self) -> None:
        """Set the small buffer."""
        self._large = False
        self._set(SMALL_RECEIVE_BUFFER_BYTES)


class ReceiveBuffers:
    """Makes the buffers of request connections; `large_bytes` are asked of the kernel, which doubles the size."""

    def __init__(self, large_bytes: int, memory_bytes: int | None) -> None:
        self.large_bytes = large_bytes
        self.memory = KernelMemory(memory_bytes)

    def apply(self, memory_bytes: int | None) -> None:
        """Change the sum of what all buffers take beyond small ones; None: no sum, and all are large."""
        self.memory.limit_bytes = memory_bytes
        self.memory.trim(_TRIMS)

    def open(self, reader: Reader) -> ReceiveBuffer:
        """Return the buffer of a new connection."""
        return ReceiveBuffer(self, reader)


# Buffers that nothing changes: the kernel sizes them, or they are as large as the small one.
UNBOUNDED: Final = ReceiveBuffers(0, None)
