"""Sockets of connections that have ended while the kernel still had much to send.

After a mere close the kernel offers a full send queue, megabytes of it, to a peer that takes nothing until its own
time-out, in memory that no connection is counted for any more: who fills many connections and leaves, again and again,
takes as much as he likes. So such a socket is kept here. Rules (`EndedQuota`):
- Bytes that the peer takes arrive, and behind them the FIN. Bytes that the peer still sends are dropped: unread, they
  would turn the close into an RST, and what is under way would be lost. So the socket stays until the peer ends, too.
- A peer that takes nothing for `STALL_SECONDS`, or is not done after `LONGEST_SECONDS`, is reset; one that has taken
  everything is merely closed.
- Bytes of a relay in user space, too, be the kernel's few or many, are sent by these clocks, by both relay engines
  (`Ending` in `native/src/relay/pair.rs`).
- All together hold at most `most_bytes`. For a newcomer those who take least are reset, unless they take
  `WELL_BYTES_PER_SECOND`; if these do not suffice, the newcomer is.
"""

import asyncio
import fcntl
import socket
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple

from proxy.core.counters import Counters, counter_by, gauge
from proxy.net.sockets import memory_bytes, reset_on_close, untaken_bytes

STALL_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 300.0
# A peer that takes so much keeps its place for a newcomer: the usual largest queue has left in four minutes.
WELL_BYTES_PER_SECOND: Final = 16 * 1024
# Each is a descriptor.
MOST_SOCKETS: Final = 1024
# Without a limit by `maxConcurrentInboundConnections`: one full queue of the usual `tcp_wmem` (4 MiB), which the kernel
# passes by some percent, has room alone.
LEAST_BYTES: Final = 5 * 1024 * 1024
A_CONNECTION_BYTES: Final = 8 * 1024
SOCKETS_A_TURN: Final = 50
_DROP_BYTES: Final = 256 * 1024
_DROPS_A_LOOK: Final = 4
_TCP_CLOSED: Final = 7


class EndedReset(StrEnum):
    """Why a peer was reset that had not taken all bytes of a connection that has ended."""

    STALLED = "stalled"
    TOO_LONG = "too_long"
    NO_ROOM = "no_room"


ENDED_SOCKETS: Final = gauge(
    "ended_sockets", "Sockets of connections that have ended, for whose peers the kernel still has much to send."
)
ENDED_BYTES: Final = gauge("ended_socket_bytes", "Memory in the kernel of these sockets.", "bytes")
ENDED_RESETS: Final = counter_by(
    "reason",
    "ended_socket_resets",
    "Peers that were reset because they had not taken all bytes of a connection that has ended, by reason.",
    EndedReset,
)


class Left(NamedTuple):
    """The bytes of a socket that its peer has not acknowledged, and the memory that the kernel has for the socket."""

    unsent: int
    memory: int


class EndedSocket:
    """A socket, and how much its peer has taken of it."""

    __slots__ = ("began_at", "first", "left", "taken_at")

    def __init__(self, left: Left, now: float) -> None:
        self.first = left.unsent
        self.left = left
        self.began_at = self.taken_at = now

    def rate(self, now: float) -> float:
        """Return the bytes a second that the peer has taken."""
        return (self.first - self.left.unsent) / max(now - self.began_at, 1.0)

    def saw(self, left: Left, now: float) -> EndedReset | None:
        """Take note of what is left, and return why the peer has to be reset, if it has."""
        if left.unsent < self.left.unsent:
            self.taken_at = now
        self.left = left
        if now - self.taken_at >= STALL_SECONDS:
            return EndedReset.STALLED
        return EndedReset.TOO_LONG if now - self.began_at >= LONGEST_SECONDS else None


class EndedQuota:
    """Chooses the ended sockets that have to go. No I/O, no clock; the caller closes what is removed."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0
        self._sockets: dict[int, EndedSocket] = {}
        # Sockets whose peers took little at the last look; the one that took most is the first.
        self._slowest: list[int] = []

    def __len__(self) -> int:
        return len(self._sockets)

    def add(self, number: int, left: Left, now: float) -> list[int]:
        """Add a socket, and return those that have to go for it; if room cannot be made, the new one alone."""
        self._sockets[number] = EndedSocket(left, now)
        self.used_bytes += left.memory
        gone: list[int] = []
        while self._full:
            while self._slowest and self._slowest[-1] not in self._sockets:
                self._slowest.pop()
            slowest = self._slowest.pop() if self._slowest else number
            self.remove(slowest)
            gone.append(slowest)
            if slowest == number:
                break
        return gone

    def remove(self, number: int) -> None:
        """Forget a socket; one that is not there is ignored."""
        ended = self._sockets.pop(number, None)
        if ended is not None:
            self.used_bytes -= ended.left.memory

    def saw(self, number: int, left: Left, now: float) -> EndedReset | None:
        """Take note of what a socket has left, and return why the peer has to be reset, if it has."""
        ended = self._sockets[number]
        self.used_bytes += left.memory - ended.left.memory
        return ended.saw(left, now)

    def looked_at_all(self, now: float) -> None:
        """Choose who goes first when a newcomer finds no room."""
        rates = {number: ended.rate(now) for number, ended in self._sockets.items() if now > ended.began_at}
        # A peer that has everything loses nothing.
        rates.update((number, -1.0) for number, ended in self._sockets.items() if not ended.left.unsent)
        slow = [number for number, rate in rates.items() if rate < WELL_BYTES_PER_SECOND]
        self._slowest = sorted(slow, key=rates.__getitem__, reverse=True)

    @property
    def _full(self) -> bool:
        return self.used_bytes > self.most_bytes or len(self._sockets) > MOST_SOCKETS


class EndedSockets:
    """Keeps the sockets, looks at each once a second, and closes or resets those that are done or have to go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters) -> None:
        self.quota = EndedQuota(LEAST_BYTES)
        self._counters = counters
        self._loop = loop
        # By a number of ours: that of a descriptor is used again.
        self._last_number = 0
        counters.show(ENDED_SOCKETS, lambda: len(self))
        counters.show(ENDED_BYTES, lambda: self.quota.used_bytes)
        self._sockets: dict[int, socket.socket] = {}
        # Transports that hold bytes or a descriptor of the same socket: the FIN has to wait for them.
        self._closing: dict[int, asyncio.Transport] = {}
        self._dropped = bytearray()

    def __len__(self) -> int:
        return len(self._sockets)

    def limit(self, connections: int) -> None:
        """Set how much all may hold, for so many connections at most."""
        self.quota.most_bytes = LEAST_BYTES + A_CONNECTION_BYTES * connections

    def keep_behind(self, transport: asyncio.Transport) -> int | None:
        """Keep the socket of a transport that is about to be closed; None without a descriptor for it.

        Until `transport_gone` is called with the number that is returned, the transport may have bytes to send.
        """
        own = transport.get_extra_info("socket")
        try:
            fd = fcntl.fcntl(own.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)
        except OSError:
            return None
        return self._keep(fd, transport)

    def transport_gone(self, number: int) -> None:
        """Send the FIN: the transport has nothing more to send."""
        if self._closing.pop(number, None) is not None:
            # A connection that is gone has nobody to tell.
            with suppress(OSError):
                self._sockets[number].shutdown(socket.SHUT_WR)

    def keep(self, fd: int) -> None:
        """Keep a socket, whose descriptor the caller gives away and whose FIN is sent."""
        self._keep(fd, None)

    def reset(self, number: int) -> None:
        """Reset a peer, if its socket is still kept."""
        if number in self._sockets:
            self._reset(number)

    async def sweep(self, now: float) -> None:
        """Look at all sockets, a few in an iteration of the loop; called once a second."""
        for count, number in enumerate(list(self._sockets), 1):
            if number in self._sockets:
                self._look(number, now)
            if not count % SOCKETS_A_TURN:
                await asyncio.sleep(0)
        self.quota.looked_at_all(now)
        self._dropped = bytearray()

    def close(self) -> None:
        """Close all: the process ends, and the kernel sends what is left."""
        for number in list(self._sockets):
            self._release(number)

    def _keep(self, fd: int, closing: asyncio.Transport | None) -> int:
        self._last_number += 1
        number = self._last_number
        sock = self._sockets[number] = socket.socket(fileno=fd)
        if closing is not None:
            self._closing[number] = closing
        left = self._left(number, sock)
        if left is None:
            self._release(number)
            return number
        for gone in self.quota.add(number, left, self._loop.time()):
            self._counters[ENDED_RESETS][EndedReset.NO_ROOM] += 1
            self._reset(gone)
        return number

    def _look(self, number: int, now: float) -> None:
        sock = self._sockets[number]
        self._drop_received(sock)
        left = self._left(number, sock)
        why = None if left is None else self.quota.saw(number, left, now)
        if left is None or (why is not None and not left.unsent):
            self._release(number)
        elif why is not None:
            self._counters[ENDED_RESETS][why] += 1
            self._reset(number)

    def _left(self, number: int, sock: socket.socket) -> Left | None:
        """Return what a socket has left; None if its connection is gone."""
        try:
            # A connection that is gone still tells what it once had to send.
            if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSED:
                return None
            unsent = untaken_bytes(sock.fileno())
        except OSError:
            return None
        memory = None
        with suppress(OSError):
            memory = memory_bytes(sock)
        if memory is None:
            # Some kernels of sandboxes do not say.
            memory = unsent
        closing = self._closing.get(number)
        in_user_space = 0 if closing is None else closing.get_write_buffer_size()
        return Left(unsent + in_user_space, memory + in_user_space)

    def _drop_received(self, sock: socket.socket) -> None:
        self._dropped = self._dropped or bytearray(_DROP_BYTES)
        with suppress(OSError):
            for _ in range(_DROPS_A_LOOK):
                # MSG_TRUNC: TCP copies nothing (tcp(7)).
                if sock.recv_into(self._dropped, _DROP_BYTES, socket.MSG_TRUNC | socket.MSG_DONTWAIT) < _DROP_BYTES:
                    return

    def _reset(self, number: int) -> None:
        reset_on_close(self._sockets[number])
        if (closing := self._closing.get(number)) is not None:
            closing.abort()
        self._release(number)

    def _release(self, number: int) -> None:
        self.quota.remove(number)
        self._closing.pop(number, None)
        self._sockets.pop(number).close()
