"""The kernel memory of relayed sockets: how it is bounded, and what the kernel says of each.

Nearly all memory of a stalled relay is in its sockets. `TCP_NOTSENT_LOWAT` acts at any time and leaves autotuning on; a
receive buffer that is set ends autotuning, and has to be set before the connection is made (`brokers/dialer.py`).

The threads of the native engine read the sockets that they move (`native/src/relay/weights.rs`); those of small relays
are read here.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final, NamedTuple

from proxy.net.sockets import memory_bytes

# Python's `socket` does not name it (linux/tcp.h).
TCP_NOTSENT_LOWAT: Final = 25


class SocketMemory(NamedTuple):
    """Bytes of kernel memory in relayed sockets, by the side that a socket leads to."""

    towards_brokers: int
    towards_clients: int


class ReceivedMemory(NamedTuple):
    """The part of that memory which was received and is not read, by the side that sent it."""

    from_brokers: int
    from_clients: int


NO_SOCKET_MEMORY: Final = SocketMemory(0, 0)
NOTHING_RECEIVED: Final = ReceivedMemory(0, 0)


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
    try:
        return memory_bytes(transport.get_extra_info("socket")) or 0
    except (OSError, AttributeError):
        return 0
