"""Let askers in: those at the control socket and those at `adminApiAddress`, few at once, each for a bounded time.

Rule: one request a connection. A place is taken when a connection is accepted and free when it is gone, whatever its
other end does: the request must be there within `REQUEST_SECONDS`, and the answer taken within `ANSWER_SECONDS`. One
more than its door has places for is told and cut. What HTTP needs is imported when the first asker comes, off the
loop: a proxy that nobody asks pays nothing for it.
"""

import asyncio
import importlib
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread
from proxy.net.accept_loop import AcceptLoop
from proxy.web.admin.access import AdminAccess, Peer, peer_of
from proxy.web.admin.control_socket import BACKLOG, ControlSocket
from proxy.web.admin.sources import AdminSources

# At each of the two doors.
MOST_CONNECTIONS: Final = 8
# What an asker costs at most, one that does not read included: 10,000 references to those who wait, a slice of rows
# and its JSON, what its transport has not sent, the kernel's buffers, and the request. A test holds it against that.
ASKER_BYTES: Final = 1280 * 1024
# The kernel doubles what it is asked for.
SEND_BUFFER_BYTES: Final = 64 * 1024
RECEIVE_BUFFER_BYTES: Final = 16 * 1024
ACCEPTS_A_TURN: Final = 16
REQUEST_SECONDS: Final = 5.0
# A reload may take ten.
ANSWER_SECONDS: Final = 30.0
IMPORT_SECONDS: Final = 30.0
SHUTDOWN_SECONDS: Final = 1.0
_FULL: Final = b'{"reason": "as many as may ask at once (%d) are asking already"}' % MOST_CONNECTIONS
FULL_ANSWER: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%s" % (len(_FULL), _FULL)
)


class Place:
    """One asker: what ends it, and the clock that does so."""

    __slots__ = ("_door", "_loop", "_timer", "cut", "peer", "served")

    def __init__(self, loop: asyncio.AbstractEventLoop, door: "AdminListener", peer: Peer) -> None:
        self._loop = loop
        self._door = door
        self._timer = loop.call_later(REQUEST_SECONDS, self.end)
        self.peer = peer
        self.cut: Callable[[], object] = _nothing
        self.served = False

    def taken_over(self, abort: Callable[[], object]) -> None:
        """Hear that a transport owns the socket now, and how to end it."""
        self.served = True
        self.cut = abort

    def answering(self) -> None:
        """Hear that the request is there: from here the time for the answer counts."""
        self._timer.cancel()
        self._timer = self._loop.call_later(ANSWER_SECONDS, self.end)

    def end(self) -> None:
        """Cut the connection."""
        self.cut()

    def gone(self) -> None:
        """Hear that the connection is gone; a second call does nothing."""
        self._timer.cancel()
        self._door.left(self)


class RequestServer(Protocol):
    """The server that reads requests and writes answers (`proxy.web.admin.server.AdminServer`)."""

    def connection(self, place: Place) -> asyncio.Protocol:
        """Return the protocol of one connection."""

    async def shutdown(self, timeout: float | None = None) -> None:
        """End every connection."""


class AdminListener:
    """Accept askers until closed."""

    def __init__(self, sources: AdminSources, access: AdminAccess) -> None:
        self._sources = sources
        self._loop = sources.loop
        self._access = access
        self._scope = TaskScope(self._report)
        self._places: set[Place] = set()
        self._accepting: list[AcceptLoop] = []
        self._control: ControlSocket | None = None
        self._server: RequestServer | None = None

    def __len__(self) -> int:
        return len(self._places)

    def accept_at(self, control: ControlSocket) -> None:
        """Serve the control socket, and own it."""
        self._control = control
        self._loop_of().adopt(control.listening)

    def listen(self, host: str, port: int) -> int:
        """Serve an address, and give its port; raises OSError that names the key."""
        return self._loop_of().open(host, port, "adminApiAddress", BACKLOG)

    def close(self) -> None:
        """Stop accepting, cut all who are still asking, and remove the control socket; again it does nothing."""
        for accepting in self._accepting:
            accepting.close()
        self._scope.cancel()
        for place in list(self._places):
            place.end()
        if self._control is not None:
            self._control.close()

    async def closed(self) -> None:
        """Wait until nothing is left behind `close`."""
        await self._scope.emptied()
        if self._server is not None:
            await self._server.shutdown(SHUTDOWN_SECONDS)

    def left(self, place: Place) -> None:
        """Free a place."""
        self._places.discard(place)

    def _loop_of(self) -> AcceptLoop:
        self._accepting.append(AcceptLoop(self._loop, ACCEPTS_A_TURN, self._take, self._paused))
        return self._accepting[-1]

    def _take(self, accepted: socket.socket, _: str) -> None:
        peer = peer_of(accepted)
        # Each door has places of its own: who knows no token must not keep the operator off the control socket.
        if sum(place.peer.local == peer.local for place in self._places) >= MOST_CONNECTIONS:
            # So little fits into the kernel's buffer: nothing is kept for one that does not read.
            with suppress(OSError):
                accepted.send(FULL_ANSWER)
            accepted.close()
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        place = Place(self._loop, self, peer)
        self._places.add(place)
        place.cut = self._scope.start(self._serve(accepted, place), partial(self._handed_over, accepted, place))

    async def _serve(self, accepted: socket.socket, place: Place) -> None:
        if self._server is None:
            exchange = await in_thread(
                lambda: importlib.import_module("proxy.web.admin.server"), "admin", IMPORT_SECONDS
            )
            if self._server is None:
                self._server = exchange.AdminServer(self._sources, self._access)
        server = self._server
        with suppress(OSError):
            # Gone before it was served; what is not handed over is closed below.
            await self._loop.connect_accepted_socket(lambda: server.connection(place), accepted)

    def _handed_over(self, accepted: socket.socket, place: Place) -> None:
        """Close what has become no connection: it is gone, or was cut while the libraries were being loaded."""
        if not place.served:
            accepted.close()
            place.gone()

    def _paused(self, _: OSError) -> None:
        self._sources.counters.shared.accept_pauses += 1

    def _report(self, error: BaseException) -> None:
        self._sources.counters.internal_error(error, "admin")


def _nothing() -> None:
    return None
