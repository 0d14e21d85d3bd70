"""Hand two sockets over from the loop's transports to an engine that owns descriptors.

Rules (docs/architecture.md shows who owns which descriptor when):
- The sockets are duplicated first: without a free descriptor the pair is closed.
- The transports are closed once they have nothing to send, both in one step. A close without `abort`: an abort may set
  SO_LINGER, which belongs to the socket and not to the descriptor, and would turn the engine's orderly end into an RST.
- The new owner registers the duplicates only when both transports have told of their end. Until then the loop may
  still deliver what it has read, and those bytes belong in front of everything that the new owner reads.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from proxy.core.errors import DisconnectCause
from proxy.net.transport import SMALL_READ_BYTES

if TYPE_CHECKING:
    from proxy.core.native import TlsSession
    from proxy.net.tls.transport import TlsTransport

# The order of the ends: client, broker.
CLIENT: Final = 0
BROKER: Final = 1


class LeavingEnd(asyncio.BufferedProtocol):
    """The protocol of a transport that is about to leave the loop."""

    __slots__ = ("_place", "cause", "gone", "hand_over", "received", "session", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport: asyncio.Transport | None = transport
        self.received = bytearray()
        self.cause: DisconnectCause | None = None
        self.gone = False
        self.hand_over: HandOver | None = None
        # With TLS: what arrives, and what is written, is sealed.
        self.session: TlsSession | None = None
        self._place = memoryview(b"")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a small buffer of its own: a paused transport delivers once more at most."""
        self._place = memoryview(bytearray(SMALL_READ_BYTES))
        return self._place

    def buffer_updated(self, nbytes: int) -> None:
        """Keep the bytes for the next owner."""
        self.received += self._place[:nbytes]
        self._place = memoryview(b"")

    def eof_received(self) -> bool:
        """Keep the transport open: the next owner finds the FIN in the socket."""
        return True

    def resume_writing(self) -> None:
        """Continue the hand-over: everything has left."""
        if self.hand_over is not None:
            self.hand_over.drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the transport, which was the hand-over's doing unless there is an error."""
        self.gone = True
        if exc is not None:
            stalled = isinstance(exc, OSError) and exc.errno == errno.ETIMEDOUT
            self.cause = DisconnectCause.WRITE_STALLED if stalled else DisconnectCause.CONNECTION_RESET
        if self.hand_over is not None:
            self.hand_over.lost()


class HandOver:
    """The hand-over of one pair; owns duplicates of both sockets from `begin` until `take`."""

    __slots__ = ("_fds", "_handed_over", "_leaving", "_loop", "ends")

    def __init__(self, loop: asyncio.AbstractEventLoop, client: asyncio.Transport, broker: asyncio.Transport) -> None:
        self._loop = loop
        self._handed_over: Callable[[], None] | None = None
        self._leaving = False
        self.ends = (LeavingEnd(client), LeavingEnd(broker))
        self._fds: list[int] = []

    def begin(self, handed_over: Callable[[], None]) -> None:
        """Close both transports as soon as they have nothing to send; nobody reads them, no epoll set watches them.

        `handed_over` is called when both are gone and nothing more comes from them. Raises OSError if there are no
        descriptors.
        """
        for end in self.ends:
            assert end.transport is not None
            self._fds.append(_duplicate(end.transport))
        self._handed_over = handed_over
        for end in self.ends:
            assert end.transport is not None
            end.hand_over = self
            if end.transport.get_extra_info("tls_session") is not None:
                end.transport, end.session = cast("TlsTransport", end.transport).leave()
            end.transport.set_protocol(end)
        self.drained()

    @property
    def cause(self) -> DisconnectCause | None:
        """Return why a connection has ended by itself meanwhile; None if none has."""
        return self.ends[CLIENT].cause or self.ends[BROKER].cause

    def drained(self) -> None:
        """Close both transports if they have nothing to send."""
        if not self._leaving and not any(_unsent(end) for end in self.ends):
            self._leave()

    def lost(self) -> None:
        """Called when a transport is gone: if it ended by itself, the other has to follow."""
        if not self._leaving:
            self._leave()
        if self._handed_over is not None and all(end.gone for end in self.ends):
            # The transport closes its own descriptor right after it has told of its end.
            self._loop.call_soon(self._finish)

    def take(self) -> tuple[int, int]:
        """Return the descriptors of client and broker, which belong to the caller from now on."""
        client, broker = self._fds
        self._fds = []
        return client, broker

    def abort(self) -> None:
        """Close everything at once; the owner hears nothing more."""
        self._handed_over = None
        self._leaving = True
        for end in self.ends:
            if end.transport is not None and not end.gone:
                end.transport.abort()
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self._release_ends()

    def _leave(self) -> None:
        self._leaving = True
        for end in self.ends:
            if end.transport is not None and not end.gone:
                end.transport.close()

    def _finish(self) -> None:
        handed_over, self._handed_over = self._handed_over, None
        if handed_over is not None:
            self._release_ends()
            handed_over()

    def _release_ends(self) -> None:
        # End, transport and hand-over know each other: only a full collection would free them.
        for end in self.ends:
            end.hand_over = end.transport = None


def _duplicate(transport: asyncio.Transport) -> int:
    own: Any = transport.get_extra_info("socket")
    return fcntl.fcntl(own.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)


def _unsent(end: LeavingEnd) -> int:
    return 0 if end.gone or end.transport is None else end.transport.get_write_buffer_size()
