"""Own a transport without a kernel: its peer takes as many bytes as a test says, when it says so.

Behaves as asyncio's and uvloop's do with a high mark of 0 (tests/unit/proxy/net/test_transport.py holds all three to
the same contract): a write that the peer takes whole never pauses its protocol, anything left does, and
`resume_writing` comes when the last byte has left. What is unsent at `abort` is lost.

Lists are written past the transport, to its descriptor (`proxy.requests.topic_lists.bodies`): those calls are answered
here, as a socket answers them that has exactly `room`.
"""

import asyncio
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from proxy.requests.topic_lists import bodies as list_bodies


class _SocketCalls:
    """What list bodies call of `os`: for descriptors of transports in memory answered by them, else by the kernel."""

    def __init__(self) -> None:
        # Weak: the number of a socket that was collected may be a real connection's by now.
        self._transports: WeakValueDictionary[int, MemoryTransport] = WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def add(self, fd: int, transport: "MemoryTransport") -> None:
        # For good: all other descriptors are the kernel's, with and without this.
        vars(list_bodies)["os"] = self
        self._transports[fd] = transport

    def discard(self, fd: int) -> None:
        self._transports.pop(fd, None)

    def write(self, fd: int, data: memoryview) -> int:
        transport = self._transports.get(fd)
        return os.write(fd, data) if transport is None else transport.send_now(data)

    def writev(self, fd: int, pieces: Iterable[memoryview]) -> int:
        transport = self._transports.get(fd)
        return os.writev(fd, tuple(pieces)) if transport is None else transport.send_now(b"".join(pieces))

    def sendfile(self, fd: int, source: int, offset: int, count: int) -> int:
        transport = self._transports.get(fd)
        if transport is None:
            return os.sendfile(fd, source, offset, count)
        return transport.send_now(os.pread(source, min(count, max(1, transport.room)), offset))


_SOCKET_CALLS = _SocketCalls()


class MemoryTransport(asyncio.Transport):
    """Carry what is written to `peer_bytes`, as far as there is `room`; `events` says what happened in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, room: int = 1 << 40) -> None:
        # A real descriptor, so that a hang-up watcher and the pump may watch it: full when there is no room.
        self._socket, self._other = socket.socketpair()
        for end in (self._socket, self._other):
            end.setblocking(False)
        super().__init__({"socket": self._socket, "peername": ("192.0.2.1", 50000)})
        self._loop = loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffer = bytearray()
        self._paused = False
        self._closing = False
        self._lost = False
        self.room = room
        self.peer_bytes = bytearray()
        self.events: list[str] = []
        self.largest_buffer = 0

    def connect(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand this transport to its protocol, as a loop does."""
        self._protocol = protocol
        _SOCKET_CALLS.add(self._socket.fileno(), self)
        protocol.connection_made(self)

    def take(self, count: int) -> None:
        """Let the peer take `count` bytes more."""
        self.room += count
        self._move()
        if self.room and not self._lost:
            with suppress(BlockingIOError):
                while self._other.recv(1 << 20):
                    pass

    def _fill(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._socket.send(bytes(1 << 16))

    def send_now(self, data: bytes | memoryview) -> int:
        """Take what there is room for, past the write buffer, as a socket that does not block."""
        if not self.room:
            self._fill()
            raise BlockingIOError("no room")
        count = min(self.room, len(data))
        self.room -= count
        if not self.room:
            self._fill()
        self.peer_bytes += data[:count]
        self.events.append(f"sent {count}")
        return count

    # --- asyncio.Transport ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost or self._closing:
            return
        self.events.append(f"write {len(data)}")
        self._buffer += data
        self._move()
        self.largest_buffer = max(self.largest_buffer, len(self._buffer))
        if self._buffer and not self._paused and self._protocol is not None:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.events.append("write eof")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0, f"expected a high mark of 0, got {high}"

    def pause_reading(self) -> None:
        self.events.append("pause reading")

    def resume_reading(self) -> None:
        self.events.append("resume reading")

    def is_reading(self) -> bool:
        said = (event for event in reversed(self.events) if event.endswith(" reading"))
        return next(said, "resume reading") == "resume reading"

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self.events.append("close")
        self._closing = True
        if not self._buffer:
            self._lose()

    def abort(self) -> None:
        self.events.append("abort")
        self._closing = True
        self._buffer.clear()
        self._lose()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def _move(self) -> None:
        count = min(self.room, len(self._buffer))
        self.room -= count
        self.peer_bytes += self._buffer[:count]
        del self._buffer[:count]
        if self._buffer:
            return
        if self._paused and self._protocol is not None:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing:
            self._lose()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._gone)

    def _gone(self) -> None:
        _SOCKET_CALLS.discard(self._socket.fileno())
        self._socket.close()
        self._other.close()
        if self._protocol is not None:
            self._protocol.connection_lost(None)
