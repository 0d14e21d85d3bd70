"""Clients on the TLS port from accept to the end of their handshake: how many shake hands at once, and in what order.

Rule: nobody is refused for coming with many others. A client that has sent nothing is a socket that nobody reads and a
small object; one that has begun waits the same way, in order, until there is a place. The places are for those who get
on: a handshake that takes long keeps its connection until the clock of all handshakes ends it, not its place.
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

# More than a handshake takes over a slow line.
PLACE_SECONDS: Final = 1.0
_EVENTS_A_TURN: Final = 1024
_BEGUN: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR


class Arrival:
    """A client whose handshake is not done (`proxy.clients.sessions` knows it like any other)."""

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
        # The timer that takes its place away, while it has one.
        self.place: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Tell whether a drain has to wait: nothing was promised yet."""
        return False

    def tick(self, now: float) -> None:
        """Owe no keep-alive yet."""

    def limits_changed(self) -> None:
        """Pass over: the clock is the sessions'."""

    def retire(self, now_or_never: bool) -> None:
        """End a connection that has reached its age."""
        self.close(DisconnectCause.CONNECTION_AGE)

    def close(self, cause: DisconnectCause) -> None:
        """End the connection."""
        self._arrivals.end(self, cause)

    def abort(self, cause: DisconnectCause) -> None:
        """End the connection."""
        self._arrivals.end(self, cause)


class ArrivalRegistry(Protocol):
    """What is told about arrivals (`proxy.clients.sessions.Sessions`)."""

    def add(self, session: Arrival, since: float) -> None:
        """Count a client that was accepted at that time of the loop."""

    def ended(self, session: Arrival, cause: DisconnectCause) -> None:
        """Hear that its connection is gone."""


class Arrivals:
    """Shake hands with at most `places` clients at once, in the order in which they began.

    `make_protocol` makes what takes the place of an arrival whose handshake is done, in the sessions too.
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
        """Own a socket that was accepted at `since`; `header` is what a load balancer said of the client."""
        arrival = Arrival(self, sock, address, header)
        self._sessions.add(arrival, since)
        self._silent[sock.fileno()] = arrival
        self._epoll.register(sock.fileno(), _BEGUN)

    def end(self, arrival: Arrival, cause: DisconnectCause) -> None:
        """End one whose handshake is not done; a second call does nothing."""
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
        """Give up the epoll set; a second call does nothing."""
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
        """Forget one that is a client now, or gone."""
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
            # Reset while it waited.
            sock.close()
            self.end(arrival, DisconnectCause.CONNECTION_RESET)

    def _done(self, arrival: Arrival) -> asyncio.BufferedProtocol:
        self._counters.handshake("client", "done")
        protocol = self._make_protocol(arrival)
        self._leave(arrival)
        return protocol

    def _failed(self, arrival: Arrival, failure: TlsFailed) -> None:
        if arrival.transport is None:
            # It was ended here, and is counted already.
            return
        self._counters.handshake("client", failure.reason)
        if failure.__cause__ is not None:
            self._counters.internal_error(failure.__cause__, "tls")
        if self._pace.due(self._loop.time(), failure.reason):
            self._log.info("tls handshake failed", client=arrival.name, reason=failure.reason, detail=failure.detail)
        self._leave(arrival)
        self._sessions.ended(arrival, failure.cause)
