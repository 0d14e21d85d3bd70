"""The receive windows of relayed sockets: what the kernel may keep of a sender's bytes while nobody takes them.

Rule: the window towards a broker is narrow until the client has taken `PROVEN_BYTES`. So consumers that never read hold
little, and all others have what the operator asked for, or the kernel's autotuning. While the memory of all relayed
sockets is short (`tight`), nothing is widened, and a socket that holds more than it moved in a second is narrowed:
bytes that are there already stay, but no more come. The threads of the native engine have the same rule in the
extension (`native/src/relay/windows.rs`).
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final, Protocol

from proxy.net.listen.accept_loop import receive_is_set, tune_receive_again
from proxy.relay.memory.sockets import memory_of

# The size that is asked for; the kernel doubles a size.
NARROW_BYTES: Final = 64 * 1024
# More than a receiver's own kernel takes for a program that does not read.
PROVEN_BYTES: Final = 1024 * 1024


class ReceiveWindows:
    """The rules for all windows; `wide_bytes`: the size of a wide window, 0 for the kernel's autotuning."""

    def __init__(self, wide_bytes: int) -> None:
        self.wide_bytes = wide_bytes
        # The memory of all relayed sockets is short.
        self.tight = False
        self.may_narrow = (wide_bytes == 0 and _can_unlock()) or wide_bytes > NARROW_BYTES

    def begin(self, broker: asyncio.BaseTransport) -> None:
        """Set a narrow window towards the broker of a new relay."""
        if self.may_narrow:
            self.set(broker, NARROW_BYTES)

    def set(self, transport: asyncio.BaseTransport, size: int) -> None:
        """Bound the kernel's receive buffer, which ends its autotuning."""
        own: Any = transport.get_extra_info("socket")
        # A connection that has ended meanwhile needs no bound.
        with suppress(OSError, AttributeError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def widen(self, transport: asyncio.BaseTransport) -> None:
        """Set the wide window, or have the kernel tune the buffer again."""
        # The kernel enlarges a window only when a round trip brings more than any before, and never beyond the clamp: a
        # narrow window that is only handed back stays narrow. So a wide window begins with what was taken.
        size = self.wide_bytes or PROVEN_BYTES
        self.set(transport, size)
        own: Any = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, size)
            if not self.wide_bytes:
                tune_receive_again(own)


class ReceiveWindow:
    """The window of one socket of the event loop; `passed` are the bytes read before the relay's last look."""

    __slots__ = ("_proven_at", "_seen", "_windows", "moved", "passed")

    def __init__(self, windows: ReceiveWindows, *, narrow: bool) -> None:
        self._windows = windows
        self._proven_at = PROVEN_BYTES if narrow and windows.may_narrow else 0
        self._seen = 0
        self.passed = 0
        # Bytes read between the last two looks.
        self.moved = 0

    @property
    def narrow(self) -> bool:
        """Return True until the receiver has taken enough, and again after a look while memory was short."""
        return self._proven_at > 0

    def prove(self, transport: asyncio.BaseTransport | None, received: int) -> None:
        """Set the wide window if the receiver has taken enough; `received`: since the relay's last look."""
        if self.passed + received >= self._proven_at and not self._windows.tight and transport is not None:
            self._windows.widen(transport)
            self._proven_at = 0

    def look(self, transport: asyncio.BaseTransport, received: int, memory: int) -> None:
        """Take the look of a second at a socket that holds `memory`."""
        read = self.passed + received
        self.moved, self._seen = read - self._seen, read
        windows = self._windows
        if windows.tight and windows.may_narrow and not self.narrow and self.moved < memory:
            # Less than what is there would drop segments that are on their way.
            windows.set(transport, max(NARROW_BYTES, memory // 2))
            self._proven_at = read + PROVEN_BYTES


class WindowOwner(Protocol):
    """The part of an endpoint that has a window (`relay.RelayEndpoint`)."""

    received: int
    window: ReceiveWindow | None

    @property
    def transport(self) -> asyncio.Transport | None:
        """Return the connection; None once that is gone."""

    @property
    def peer(self) -> "Receiver":
        """Return who gets the bytes."""


class Receiver(Protocol):
    """The other endpoint."""

    @property
    def write_pending(self) -> bool:
        """Return whether bytes wait in user space."""


def weigh(endpoint: WindowOwner) -> int:
    """Return the kernel memory of an endpoint's socket, and take its window's look of a second."""
    transport, window = endpoint.transport, endpoint.window
    memory = memory_of(transport)
    if window is not None and transport is not None:
        if window.narrow and not endpoint.peer.write_pending:
            window.prove(transport, endpoint.received)
        window.look(transport, endpoint.received, memory)
    return memory


def note_received(*endpoints: WindowOwner) -> None:
    """Add to the windows what was received since the relay's last look."""
    for endpoint in endpoints:
        if endpoint.window is not None:
            endpoint.window.passed += endpoint.received


def _can_unlock() -> bool:
    with socket.socket() as probe, suppress(OSError):
        receive_is_set(probe)
        return True
    return False
