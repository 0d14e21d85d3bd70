"""Clients on the TLS port from accept to the end of their handshake: how many handshakes run at once, in which order.

Rule: no client is refused because many others came with it. A client that has sent nothing costs a socket that is not
read and a small object; a client that has sent its first bytes waits the same way, in order, for a place. A handshake
that takes long loses its place to the next client, but keeps its connection until the handshake time-out.
"""

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from protocol.proxy_header import ProxyHeader
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.core.tasks import TaskScope
from proxy.net.tls.counters import TlsCounters
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport

# Longer than a handshake over a slow line.
PLACE_SECONDS: Final = 1.0
_EVENTS_A_TURN: Final = 1024
_BEGUN: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR


class Arrival:
    """A client whose handshake is not done; one of the sessions in `proxy.clients.sessions`."""

    __slots__ = ("_arrivals", "client_address", "header", "name", "place", "sock", "transport")

    def __init__(
        self, arrivals: "Arrivals", sock: socket.socket, client_address: str, header: ProxyHeader | None
    ) -> None:
        self._arrivals = arrivals
        self.sock: socket.socket | None = sock
        self.client_address = client_address
        self.header = header
        self.name = client_address
        self.transport: TlsTransport | None = None
        # The timer that ends the arrival's place; None while the arrival has no place.
        self.place: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Return False: a drain does not wait for a handshake, because no request is under way."""
        return False

    def tick(self, now: float) -> None:
        """Skip: keep-alive begins after the handshake."""

    def limits_changed(self) -> None:
        """Skip: the sessions measure the handshake time-out."""

    def retire(self, now_or_never: bool) -> None:
        """Close a connection that has reached its maximum age."""
        self.close(DisconnectCause.CONNECTION_AGE)

    def close(self, cause: DisconnectCause) -> None:
        """Close the connection at once: nothing was written that could be sent first."""
        self._arrivals.end(self, cause)

    def abort(self, cause: DisconnectCause) -> None:
        """Close the connection at once."""
        self._arrivals.end(self, cause)


class ArrivalRegistry(Protocol):
    """The registry of all sessions (`proxy.clients.sessions.Sessions`), as arrivals use it."""

    def add(self, session: Arrival, since: float) -> None:
        """Register a client that was accepted at `since`, in the loop's time."""

    def ended(self, session: Arrival, cause: DisconnectCause) -> None:
        """Called when the connection has ended before the end of its handshake."""


class Arrivals:
    """Do handshakes with at most `places` clients at once, in the order of their first bytes.

    `make_protocol` makes the client's endpoint after the handshake and replaces the arrival in the sessions by it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: TlsShared,
        current: Callable[[], ssl.SSLContext],
        places: int,
        sessions: ArrivalRegistry,
        make_protocol: Callable[[Arrival], asyncio.BufferedProtocol],
        counters: TlsCounters,
        log: Logger,
    ) -> None:
        self._loop = loop
        self._shared = shared
        self._current = current
        self._places = places
        self._sessions = sessions
        self._make_protocol = make_protocol
        self._counters = counters
        self._log = log
        self._pace = LinePace()
        self._silent: dict[int, Arrival] = {}
        self._begun: deque[Arrival] = deque()
        self._taken = 0
        self._scope = TaskScope(lambda error: counters.internal_error(error, "tls"))
        self._epoll = select.epoll()
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def __len__(self) -> int:
        return len(self._silent) + len(self._begun) + self._taken

    def take(self, sock: socket.socket, address: str, header: ProxyHeader | None, since: float) -> None:
        """Accept a socket that was accepted at `since`; `header` is the PROXY header of a load balancer.

        The socket belongs to this object from the call on.
        """
        arrival = Arrival(self, sock, address, header)
        self._sessions.add(arrival, since)
        self._silent[sock.fileno()] = arrival
        self._epoll.register(sock.fileno(), _BEGUN)

    def end(self, arrival: Arrival, cause: DisconnectCause) -> None:
        """Close the connection of an arrival; a second call does nothing."""
        if arrival.sock is None and arrival.transport is None:
            return
        timed_out = cause is DisconnectCause.HANDSHAKE_TIMEOUT
        if timed_out or cause is DisconnectCause.CONNECTION_RESET:
            self._counters.handshake("client", "timeout" if timed_out else "gone")
        transport = arrival.transport
        self._leave(arrival)
        if transport is not None:
            transport.abort()
        self._sessions.ended(arrival, cause)

    async def close(self) -> None:
        """Cancel all handshakes and close the epoll set; a second call does nothing."""
        self._scope.cancel()
        await self._scope.emptied()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    # --- places -----------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        for fd, events in self._epoll.poll(0, _EVENTS_A_TURN):
            arrival = self._silent.get(fd)
            if arrival is None:
                continue
            if events & _GONE:
                self.end(arrival, DisconnectCause.CONNECTION_RESET)
            else:
                self._unwatch(arrival)
                self._begun.append(arrival)
        self._fill_places()

    def _fill_places(self) -> None:
        begun = self._begun
        while begun and self._taken < self._places:
            arrival = begun.popleft()
            if arrival.sock is not None:
                self._taken += 1
                arrival.place = self._loop.call_later(PLACE_SECONDS, self._give_up_place, arrival)
                self._scope.start(self._shake(arrival))
        self._count()

    def _give_up_place(self, arrival: Arrival) -> None:
        if arrival.place is not None:
            arrival.place.cancel()
            arrival.place = None
            self._taken -= 1
            self._fill_places()

    def _count(self) -> None:
        self._counters.handshakes_in_flight = self._taken
        self._counters.handshakes_waiting = len(self._begun)

    def _unwatch(self, arrival: Arrival) -> None:
        if arrival.sock is not None and self._silent.pop(arrival.sock.fileno(), None) is not None:
            self._epoll.unregister(arrival.sock.fileno())

    def _leave(self, arrival: Arrival) -> None:
        """Remove an arrival that became a client, or whose connection has ended."""
        self._unwatch(arrival)
        sock, arrival.sock = arrival.sock, None
        if sock is not None and arrival.transport is None:
            sock.close()
        arrival.transport = None
        self._give_up_place(arrival)

    # --- handshakes -------------------------------------------------------------------------------

    async def _shake(self, arrival: Arrival) -> None:
        sock = arrival.sock
        if sock is None:
            return
        transport = arrival.transport = TlsTransport(
            self._shared,
            self._current(),
            lambda: self._done(arrival),
            lambda failure: self._failed(arrival, failure),
            server_side=True,
        )
        try:
            await self._loop.connect_accepted_socket(lambda: transport, sock)
        except OSError:
            # The client reset the connection while it waited.
            sock.close()
            self.end(arrival, DisconnectCause.CONNECTION_RESET)

    def _done(self, arrival: Arrival) -> asyncio.BufferedProtocol:
        self._counters.handshake("client", "done")
        protocol = self._make_protocol(arrival)
        self._leave(arrival)
        return protocol

    def _failed(self, arrival: Arrival, failure: TlsFailed) -> None:
        if arrival.transport is None:
            # `end` closed this connection, and has counted it.
            return
        self._counters.handshake("client", failure.reason)
        if failure.__cause__ is not None:
            self._counters.internal_error(failure.__cause__, "tls")
        if self._pace.due(self._loop.time(), failure.reason):
            self._log.info("tls handshake failed", client=arrival.name, reason=failure.reason, detail=failure.detail)
        self._leave(arrival)
        self._sessions.ended(arrival, failure.cause)
