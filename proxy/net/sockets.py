"""What the kernel tells of a TCP socket, and how a peer is reset."""

import fcntl
import socket
import struct
import sys
import termios
from contextlib import suppress
from typing import Any, Final

# linux/socket.h; Python's `socket` does not name it. 0.6 us a socket.
_SO_MEMINFO: Final = 55
# The first numbers of SO_MEMINFO: receive queue, its limit, bytes in the driver, send buffer, forward allocation, send
# queue, options, backlog (linux/sock_diag.h).
_MEMINFO: Final = struct.Struct("4Ii3I")
# SO_LINGER for an RST: what is unsent is dropped.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


def untaken_bytes(fd: int) -> int:
    """Return the bytes in the kernel that the peer has not acknowledged. Raises OSError."""
    # TIOCOUTQ is Linux's other name for SIOCOUTQ (tcp(7)).
    return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def unread_bytes(fd: int) -> int:
    """Return the bytes that wait in the kernel to be read. Raises OSError."""
    # FIONREAD is Linux's other name for SIOCINQ (tcp(7)).
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def memory_bytes(own: Any) -> int | None:
    """Return the kernel memory of a socket; None where the kernel does not say. Raises OSError."""
    return used_of(own.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))


def used_of(meminfo: bytes) -> int | None:
    """Return the sum of both queues, the backlog and what is allocated ahead; None for an answer that is too short."""
    if len(meminfo) < _MEMINFO.size:
        return None
    received, _, _, _, ahead, queued, _, backlog = _MEMINFO.unpack_from(meminfo)
    # The kernel takes from what is allocated ahead first and allocates then: below zero for a moment.
    return int(received + max(ahead, 0) + queued + backlog)


def reset_on_close(own: Any) -> None:
    """Have the close of a socket send an RST: the kernel drops what it still has to send."""
    with suppress(OSError):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
