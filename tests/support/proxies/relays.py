"""Look at a relay without knowing its engine: through its handle, as the proxy does."""

import socket
from pathlib import Path
from typing import Final

from proxy.relay.engine import Direction, PauseReason, Relay
from tests.support.clients.async_client import AsyncClient

TO_BROKER: Final = Direction.TO_BROKER
TO_CLIENT: Final = Direction.TO_CLIENT
# States of the kernel (tcp_states.h); a socket with both FINs is handed to TIME_WAIT, and is closed itself.
CLOSED, CLOSE_WAIT = 7, 8
_TIME_WAIT = 6
_NO_ROW: Final = [f"{CLOSED:X}", "0:0"]


def reads(relay: Relay, direction: Direction) -> bool:
    """Tell whether the sender of `direction` is read."""
    return relay.snapshot().reads(direction)


def unsent(relay: Relay, direction: Direction) -> int:
    """Count the bytes that the receiver of `direction` has not taken from the proxy."""
    return relay.snapshot().unsent[direction]


def waits_for_memory(relay: Relay) -> bool:
    """Tell whether a watch frame waits for its permit."""
    return bool(relay.snapshot().paused[TO_CLIENT] & PauseReason.WATCH)


def tcp_state_towards(peer: AsyncClient) -> int:
    """Give the state of the proxy's socket at the other end of a test's connection, whoever owns the socket."""
    state = int(_row_towards(peer)[0], 16)
    return CLOSED if state == _TIME_WAIT else state


def kernel_bytes_towards(peer: AsyncClient) -> int:
    """Count the bytes that the kernel has to send to a test's connection, whoever owns the socket, or nobody."""
    return int(_row_towards(peer)[1].partition(":")[0], 16)


def unread_bytes_of(peer: AsyncClient) -> int:
    """Count the bytes that a test has sent and that the proxy has not read, whoever owns the proxy's socket."""
    return peer.undelivered + int(_row_towards(peer)[1].partition(":")[2], 16)


def _row_towards(peer: AsyncClient) -> list[str]:
    """Give the state and the queues of the proxy's socket at the other end of a test's connection."""
    try:
        own, remote = _in_proc(peer.sock.getpeername()), _in_proc(peer.sock.getsockname())
    except OSError:
        # Both FINs have passed, and the test's own socket is closed, too.
        return _NO_ROW
    for line in Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, other, *row = line.split()
        if (local, other) == (own, remote):
            return row
    return _NO_ROW


def _in_proc(address: tuple[str, int]) -> str:
    host = int.from_bytes(socket.inet_aton(address[0]), "little")
    return f"{host:08X}:{address[1]:04X}"
