"""Accept Pulsar clients: serve them, wait for their PROXY header, or refuse them with an ERROR."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from protocol import commands
from protocol.proxy_header import ProxyHeader
from proxy.brokers.dialer import SocketOptions
from proxy.clients.connection import ClientConnection
from proxy.clients.sessions import NoPlace, Sessions
from proxy.config.core import Core
from proxy.core.counters import ACCEPT_PAUSES, DISCONNECTS, upstream
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace
from proxy.core.tasks import TaskScope
from proxy.net.listen.accept_loop import ACCEPT_PAUSE_SECONDS, AcceptLoop
from proxy.net.proxy_headers import AwaitedHeaders, HeaderWaits
from proxy.net.trusted_balancers import TrustedBalancers

if TYPE_CHECKING:
    from proxy.net.tls.arrivals import Arrivals

# Connections accepted per iteration of the event loop, with their CONNECTs some 0.3 ms each: a reconnect storm must not
# delay connected clients. With 64, lists beside 2,900 new connections a second took four times as long as with 16.
ACCEPTS_A_TURN: Final = 16
# Refused clients are kept this long to read the ERROR (closing a socket with unread input loses it), at most so many.
# As many may send their PROXY header although there is no place, if by their address they may get one.
REFUSAL_LINGER_SECONDS: Final = 1.0
MOST_LINGERING: Final = 256


REJECTED: Final = upstream("rejected_connections", "Client connections refused by a limit on their number.")


class _Refused(asyncio.Protocol):
    """Sends an ERROR, then waits a moment for the client to close."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frame: bytes, on_end: Callable[["_Refused"], None]) -> None:
        self._loop = loop
        self._frame = frame
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports are not subclasses of asyncio's.
        client = cast(asyncio.WriteTransport, transport)
        client.write(self._frame)
        client.write_eof()
        self._timer = self._loop.call_later(REFUSAL_LINGER_SECONDS, client.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on_end(self)


class Listener:
    """Accepts clients from a listening socket until closed; balancers of the configuration may send PROXY headers.

    `waits` are the clients of all listeners whose PROXY header is awaited.
    """

    def __init__(
        self,
        core: Core,
        sessions: Sessions,
        options: SocketOptions,
        make_client: Callable[[str, ProxyHeader | None], ClientConnection],
        waits: HeaderWaits,
        tls: "Arrivals | None" = None,
    ) -> None:
        loop, config, counters = core.loop, core.config, core.counters
        self._loop = loop
        self._waits = waits
        self._sessions = sessions
        self._counters = counters
        self._log = core.log.of("clients")
        self._options = options
        self._make_client = make_client
        self._tls = tls
        self._scope = TaskScope(lambda error: counters.internal_error(error, "accept"))
        self._awaited = self._new_headers()
        self._closed = False
        self._balancers = None
        if config.ha_proxy_protocol_enabled:
            self._balancers = TrustedBalancers(config.trusted_load_balancer_ip_addresses)
        self._lingering: set[_Refused] = set()
        self._pace = LinePace()
        self._accepting = AcceptLoop(loop, ACCEPTS_A_TURN, self._take, self._note_pause)

    def adopt(self, listening: socket.socket) -> None:
        """Accept clients from a listening socket, which belongs to this listener from now on; also after `close`."""
        if self._closed:
            self._closed, self._awaited = False, self._new_headers()
        self._accepting.adopt(listening)

    @property
    def listening(self) -> bool:
        """Return whether there is a socket to accept from."""
        return self._accepting.listening

    def _new_headers(self) -> AwaitedHeaders:
        sessions = self._sessions
        return AwaitedHeaders(
            self._loop, lambda: sessions.handshake_seconds, self._admit, self._waits, self._counters, self._log
        )

    def bound_received(self, size: int) -> None:
        """Bound the kernel's receive buffer of clients that come from now on; 0 leaves the kernel's choice again."""
        self._accepting.bound_received(size)

    def stop_accepting(self) -> None:
        """Stop accepting; clients whose PROXY header is awaited go on."""
        self._accepting.close()

    async def close(self, header_seconds: float = 0.0) -> None:
        """Stop accepting; accepted clients stay, those whose PROXY header comes within `header_seconds` too."""
        self._closed = True
        self._accepting.close()
        if header_seconds and len(self._awaited):
            await self._awaited.finish(header_seconds)
        await self._awaited.close()
        # Wait for accepted clients to become connections: cancelling would leave sockets without an owner.
        await self._scope.emptied()

    def _take(self, accepted: socket.socket, address: str) -> None:
        if self._balancers is None or address not in self._balancers:
            self._admit(accepted, address, None, self._loop.time())
            return
        refusal = self._sessions.refusal(None, len(self._waits))
        if refusal is None or self._may_wait(address):
            self._awaited.begin(accepted, address)
        else:
            self._refuse_with_error(accepted, refusal)

    def _may_wait(self, address: str) -> bool:
        """Return whether a client may send its PROXY header, although it and all who do leave no place."""
        makes_room = self._sessions.may_make_room
        if makes_room and len(self._waits) < MOST_LINGERING:
            return True
        # Where clients with a header hold all places, the end of one without a header gives none.
        has_place = makes_room or self._sessions.refusal(None) is None
        return has_place and self._waits.end_for(address, self._loop.time())

    def _admit(self, accepted: socket.socket, address: str, header: ProxyHeader | None, since: float) -> None:
        """Serve a client accepted at `since`, or refuse it by its address, which its PROXY header overrides."""
        if header is not None and header.source is not None:
            address = header.source.host
        refusal = self._sessions.admission(address)
        if refusal is None and self._tls is not None:
            self._take_tls(self._tls, accepted, address, header, since)
            return
        if refusal is None:
            client = self._make_client(address, header)
            self._sessions.add(client, since)
            self._scope.start(self._serve(accepted, client))
        else:
            self._refuse_with_error(accepted, refusal)

    def _refuse_with_error(self, accepted: socket.socket, refusal: NoPlace) -> None:
        cause = refusal.cause
        self._counters.disconnected(cause)
        # Operators who pause know what is turned away: upstream's counter, and its alert, are about limits.
        rejected = self._counters[REJECTED]
        rejected.value += cause is DisconnectCause.CONNECTION_LIMIT
        if self._pace.due(self._loop.time(), cause):
            count = self._counters[DISCONNECTS][cause] if cause is DisconnectCause.PAUSED else rejected.value
            self._log.warning("clients refused", reason=refusal.text, connections=count)
        if self._tls is not None or len(self._lingering) >= MOST_LINGERING:
            # A client with TLS cannot read an ERROR before its handshake.
            accepted.close()
            return
        frame = commands.error(commands.REQUEST_ID_NONE, refusal.error, refusal.public)
        refused = _Refused(self._loop, frame, self._lingering.discard)
        self._lingering.add(refused)
        self._scope.start(self._refuse(accepted, refused))

    def _take_tls(
        self, arrivals: "Arrivals", accepted: socket.socket, address: str, header: ProxyHeader | None, since: float
    ) -> None:
        try:
            self._options.apply(accepted)
            arrival = arrivals.take(accepted, address, header)
        except OSError:
            # The client reset the connection while it waited in the backlog, or the kernel cannot watch one more.
            accepted.close()
        else:
            # Behind what can fail: a session that nobody watches would never end.
            self._sessions.add(arrival, since)

    async def _serve(self, accepted: socket.socket, client: ClientConnection) -> None:
        try:
            self._options.apply(accepted)
            await self._loop.connect_accepted_socket(lambda: client, accepted)
        except OSError:
            # The client reset the connection while it waited in the backlog.
            accepted.close()
            if client.transport is None:
                self._sessions.ended(client, DisconnectCause.CONNECTION_RESET)

    async def _refuse(self, accepted: socket.socket, refused: _Refused) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: refused, accepted)
        except OSError:
            accepted.close()
            self._lingering.discard(refused)

    def _note_pause(self, error: OSError) -> None:
        self._counters[ACCEPT_PAUSES].value += 1
        self._log.warning("accepting paused", reason=error.strerror, seconds=ACCEPT_PAUSE_SECONDS)
