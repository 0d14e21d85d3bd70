"""The kernel memory of relayed sockets: how it is bounded, and what `SO_MEMINFO` says of each.

Nearly all memory of a stalled relay is in its sockets. `TCP_NOTSENT_LOWAT` acts at any time and leaves autotuning on; a
receive buffer that is set ends autotuning, and has to be set before the connection is made (`brokers/dialer.py`).

The sum is made once a second, in slices. The threads of the native engine read those that they move
(`native/src/relay/weights.rs`); small relays of the event loop are read here.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from proxy.core.errors import DisconnectCause

# Python's `socket` does not name it (linux/tcp.h).
TCP_NOTSENT_LOWAT: Final = 25
# linux/socket.h; Python's `socket` does not name it. 0.6 us a socket.
SO_MEMINFO: Final = 55
SOCKETS_A_STEP: Final = 250
# The first numbers of SO_MEMINFO: receive queue, its limit, bytes in the driver, send buffer, forward allocation, send
# queue, options, backlog (linux/sock_diag.h).
_MEMINFO: Final = struct.Struct("4Ii3I")


class SocketMemory(NamedTuple):
    """Bytes of kernel memory in relayed sockets, by the side that a socket leads to."""

    towards_brokers: int
    towards_clients: int


class ReceivedMemory(NamedTuple):
    """The part of that memory which was received and is not read, by the side that sent it."""

    from_brokers: int
    from_clients: int


# `bound.SocketBound.look`.
Look = Callable[[SocketMemory, Callable[[], Awaitable[None]]], Awaitable[None]]
NO_SOCKET_MEMORY: Final = SocketMemory(0, 0)
NOTHING_RECEIVED: Final = ReceivedMemory(0, 0)


class PausesOf(Protocol):
    """The part of a snapshot that says why a relay is not read (`engine.RelaySnapshot`)."""

    @property
    def paused(self) -> tuple[int, int]:
        """Return the reasons of both directions, as bits."""


class HeavyRelay(Protocol):
    """The part of a relay that has sockets, and may be ended for them (`engine.Relay`)."""

    def socket_bytes(self) -> SocketMemory:
        """Return the kernel memory of the relay's sockets, as far as the event loop has them: a look."""

    def snapshot(self) -> PausesOf:
        """Return the relay as it is now."""

    def abort(self, cause: DisconnectCause) -> None:
        """Close both connections at once."""


class SocketLoad(NamedTuple):
    """The kernel memory of a relay's sockets, and the bytes that it read in the last second."""

    relay: HeavyRelay
    size: int
    moved: int


def bound_unsent(transport: asyncio.BaseTransport, size: int) -> None:
    """Bound the bytes that the kernel keeps for a peer beside those under way; 0 leaves the kernel's choice."""
    if size:
        own: Any = transport.get_extra_info("socket")
        # A connection that has ended meanwhile needs no bound.
        with suppress(OSError):
            own.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, size)


def memory_of(transport: asyncio.BaseTransport | None) -> int:
    """Return the kernel memory of a transport's socket; 0 if it is gone, or the kernel won't say."""
    if transport is None:
        return 0
    own: Any = transport.get_extra_info("socket")
    try:
        return used_of(own.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))
    except (OSError, AttributeError):
        return 0


def used_of(meminfo: bytes) -> int:
    """Return the sum of both queues, the backlog and what is allocated ahead; 0 for an answer that is too short."""
    if len(meminfo) < _MEMINFO.size:
        return 0
    received, _, _, _, ahead, queued, _, backlog = _MEMINFO.unpack_from(meminfo)
    # The kernel takes from what is allocated ahead first and allocates then: below zero for a moment.
    return int(received + max(ahead, 0) + queued + backlog)


class SocketMemorySampler:
    """Adds the kernel memory of all relays up; `last` is the sum of the last whole sweep.

    `of_threads` returns the sum of the native engine's relays; `look`, if there is one, gets each sum, and what
    it calls between its steps.
    """

    def __init__(
        self,
        relays: Callable[[], Iterable[HeavyRelay]],
        of_threads: Callable[[], SocketMemory] = lambda: NO_SOCKET_MEMORY,
        look: Look | None = None,
    ) -> None:
        self._relays = relays
        self._of_threads = of_threads
        self._look = look
        self.last = NO_SOCKET_MEMORY

    async def sweep(self, pause: Callable[[], Awaitable[None]]) -> SocketMemory:
        """Add up all relays, `SOCKETS_A_STEP` at a time with a `pause` between, and return the sum."""
        brokers, clients = self._of_threads()
        for number, relay in enumerate(list(self._relays()), 1):
            found = relay.socket_bytes()
            brokers += found.towards_brokers
            clients += found.towards_clients
            if not number % (SOCKETS_A_STEP // 2):
                await pause()
        self.last = SocketMemory(brokers, clients)
        if self._look is not None:
            await self._look(self.last, pause)
        return self.last
