"""Turns of the event loop's relays at the relay pool: who may read how much, who waits, and who is next.

A direction that waits is read again when its receiver takes bytes, which an epoll set of its own tells, or when memory
is free and it is its turn (`PoolLine`). Turns come one at a time: the next begins when the read has come, or
after `TURN_SECONDS`, because nothing may be there to be read.
"""

import asyncio
import fcntl
import random
import select
import socket
import struct
import sys
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Final, Protocol

from limiter.soft_pool import PoolBooks, PoolLine
from proxy.core.tasks import call_each
from proxy.net.transport import SharedReadBuffer
from proxy.relay.counters import RelayCounters
from proxy.relay.memory.pool import RelayPool
from proxy.relay.memory.sockets import SO_MEMINFO

TURN_SECONDS: Final = 0.005
# Sockets that take bytes again, handled in one iteration of the loop.
_EVENTS_A_TURN: Final = 256
# linux/sockios.h: the bytes of the send queue that are not sent yet.
_SIOCOUTQNSD: Final = 0x894B
_MEMINFO: Final = struct.Struct("6I")
# A record of TLS adds 22 to 29 bytes to 16 KiB at most, and there may be a short one more.
_TLS_SHARE: Final = 256
_TLS_BYTES: Final = 64


class PoolReader(Hashable, Protocol):
    """A direction that reads by the rules of the pool (`relays.PooledEndpoint`)."""

    def begin_turn(self) -> None:
        """Read once, however much."""

    def end_turn(self) -> None:
        """Read no more than the rules say from now on."""

    def room_again(self) -> None:
        """Read on: the receiver takes bytes."""


class TinyBuffer(SharedReadBuffer):
    """A read buffer of one byte, for a read that cannot be called off any more while there is no memory for it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1)
        self._renew()

    def detach(self, buffer: memoryview) -> None:
        """Replace the buffer by a new one."""
        self._renew()

    def _renew(self) -> None:
        self.bulk = self.large = self.small = memoryview(bytearray(1))


class PoolTurns:
    """Gives the event loop's directions their turns at `pool`; `unsent_bytes` is their sockets' TCP_NOTSENT_LOWAT."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: RelayPool, unsent_bytes: int, counters: RelayCounters
    ) -> None:
        self._loop = loop
        self._counters = counters
        self._pool = pool
        self._unsent_bytes = unsent_bytes
        self.tiny = TinyBuffer()
        self._line: PoolLine[PoolReader] | None = None
        self._reading: PoolReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rooms = select.epoll()
        self._waiting_for_room: dict[int, PoolReader] = {}
        loop.add_reader(self._rooms.fileno(), self._room_events)

    def __len__(self) -> int:
        return 0 if self._line is None else len(self._line)

    @property
    def books(self) -> PoolBooks:
        """The books that are charged."""
        return self._pool.books

    def close(self) -> None:
        """End all turns."""
        if not self._rooms.closed:
            self._loop.remove_reader(self._rooms.fileno())
            self._rooms.close()
        if self._timer is not None:
            self._timer.cancel()
        # The line knows the books, which may be the threads': their descriptors stay open as long as anybody does.
        self._line = None

    def room(self, transport: asyncio.BaseTransport | None, fd: int, *, is_tls: bool) -> int:
        """Return how many bytes the send queue of a socket takes at once; 0 if it waits for its peer.

        The kernel's own rule for a writable socket, so that an event follows where this says 0. Bookkeeping takes as
        much again as the bytes in the worst case.
        """
        if transport is None or fd < 0:
            return 0
        own: Any = transport.get_extra_info("socket")
        try:
            found = own.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
        except OSError:
            return 0
        _, _, sent, most, _, queued = _MEMINFO.unpack_from(found)
        if own.family == socket.AF_UNIX:
            # Bytes that the reader has not taken are no queue of TCP's; the kernel's rule is unix_writable().
            return 0 if 4 * sent > most else max(1, int(most - sent) // 2)
        try:
            unsent = int.from_bytes(fcntl.ioctl(fd, _SIOCOUTQNSD, bytes(4)), sys.byteorder)
        except OSError:
            return 0
        free = most - queued
        if free < queued >> 1 or (self._unsent_bytes and 2 * unsent >= self._unsent_bytes):
            return 0
        room = int(free // 2)
        if self._unsent_bytes:
            room = min(room, self._unsent_bytes - unsent)
        return max(1, room - room // _TLS_SHARE - _TLS_BYTES if is_tls else room)

    def wait(self, reader: PoolReader, receiver_fd: int) -> None:
        """Keep `reader` waiting until its turn, or until the socket of its receiver takes bytes."""
        if self._line is None:
            # Not before: the books may have become those of the threads.
            self._line = PoolLine(self.books, random.randrange)
        self._line.enter(reader)
        if receiver_fd >= 0:
            with suppress(OSError):
                self._rooms.register(receiver_fd, select.EPOLLOUT | select.EPOLLONESHOT)
                self._waiting_for_room[receiver_fd] = reader
        # Memory may have come back before the line had a member.
        self.look()

    def forget(self, reader: PoolReader, receiver_fd: int) -> None:
        """End the wait of `reader`, if it waits."""
        if self._line is not None:
            self._line.leave(reader)
        if self._waiting_for_room.get(receiver_fd) is reader:
            del self._waiting_for_room[receiver_fd]
            with suppress(OSError, ValueError):
                self._rooms.unregister(receiver_fd)

    def look(self) -> None:
        """Begin the next turn if there is memory: called when some has come back."""
        if self._line and self._reading is None and self._timer is None and self.books.pool_free():
            self._timer = self._loop.call_later(0, self._next)

    def turn_over(self, reader: PoolReader) -> None:
        """Called when `reader` has read: the next has its turn."""
        if self._reading is reader:
            self._reading = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            reader.end_turn()
            self.look()

    def _next(self) -> None:
        self._timer = None
        if self._reading is not None:
            # Nothing was there to be read.
            self.turn_over(self._reading)
            return
        reader = None if self._line is None else self._line.admit()
        if reader is not None:
            self._reading = reader
            self._timer = self._loop.call_later(TURN_SECONDS, self._next)
            reader.begin_turn()

    def _room_events(self) -> None:
        readers = (self._waiting_for_room.get(fd) for fd, _ in self._rooms.poll(0, _EVENTS_A_TURN))
        # Events come once (EPOLLONESHOT): an event that nobody heard does not come again.
        call_each((reader.room_again for reader in readers if reader is not None), self._crashed)

    def _crashed(self, error: BaseException) -> None:
        self._counters.internal_error(error, "relay")
