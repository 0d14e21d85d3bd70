"""The listening socket and the accept loop: paced, and paused instead of spinning when file descriptors run out."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final, cast

from protocol import commands
from protocol.errors import ServerError
from protocol.proxy_header import ProxyHeader
from proxy.client_connection import ClientConnection
from proxy.counters import Counters
from proxy.dialer import SocketOptions
from proxy.errors import DisconnectCause
from proxy.log import Logger
from proxy.proxy_headers import AwaitedHeaders
from proxy.sessions import Sessions
from proxy.tasks import TaskScope
from proxy.tls.arrivals import Arrivals

# Connections taken per turn of the event loop: a reconnect storm must not hold up those who are connected.
ACCEPTS_A_TURN: Final = 64
ACCEPT_PAUSE_SECONDS: Final = 0.5
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Refused clients are kept this long to read the ERROR (a socket closed with unread input loses it), and only so many.
REFUSAL_LINGER_SECONDS: Final = 1.0
MOST_LINGERING: Final = 256


class _Refused(asyncio.Protocol):
    """Send one ERROR, then wait a moment for the client to go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frame: bytes, on_end: Callable[["_Refused"], None]) -> None:
        self._loop = loop
        self._frame = frame
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports are no subclass of asyncio's.
        client = cast(asyncio.WriteTransport, transport)
        client.write(self._frame)
        client.write_eof()
        self._timer = self._loop.call_later(REFUSAL_LINGER_SECONDS, client.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on_end(self)


class Listener:
    """Accept clients on one address until closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sessions: Sessions,
        counters: Counters,
        log: Logger,
        options: SocketOptions,
        make_client: Callable[[str, ProxyHeader | None], ClientConnection],
        tls: Arrivals | None = None,
        *,
        proxy_headers: bool = False,
    ) -> None:
        self._loop = loop
        self._sessions = sessions
        self._counters = counters
        self._log = log
        self._options = options
        self._make_client = make_client
        self._tls = tls
        self._scope = TaskScope(lambda error: counters.internal_error(error, "accept"))
        self._awaited = AwaitedHeaders(loop, lambda: sessions.handshake_seconds, self._admit, counters, log)
        self._proxy_headers = proxy_headers
        self._lingering: set[_Refused] = set()
        self._socket: socket.socket | None = None
        self._resume: asyncio.TimerHandle | None = None

    def open(self, host: str, port: int, backlog: int) -> int:
        """Listen, and give the port; raises OSError with the address in its text."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind((host, port))
            listening.listen(backlog)
        except OSError as error:
            listening.close()
            raise OSError(
                error.errno, f"cannot listen on {host}:{port} ({self._key}): {(error.strerror or '').lower()}"
            ) from error
        self._socket = listening
        self._loop.add_reader(listening.fileno(), self._accept_some)
        return int(listening.getsockname()[1])

    @property
    def _key(self) -> str:
        return "servicePort" if self._tls is None else "servicePortTls"

    async def close(self) -> None:
        """Stop accepting; those accepted already stay."""
        if self._resume is not None:
            self._resume.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        await self._awaited.close()
        # Those accepted already become connections at once: cancelled, they would be sockets without an owner.
        await self._scope.emptied()

    def _accept_some(self) -> None:
        listening = self._socket
        assert listening is not None
        for _ in range(ACCEPTS_A_TURN):
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause(error)
                    return
                # The client was gone before it was accepted.
                continue
            self._take(accepted, str(address[0]))

    def _take(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        if not self._proxy_headers:
            self._admit(accepted, address, None, self._loop.time())
            return
        reason = self._sessions.refusal(None, self._counters.awaited_headers)
        if reason is None:
            self._awaited.begin(accepted, address)
        else:
            self._turn_away(accepted, reason)

    def _admit(self, accepted: socket.socket, address: str, header: ProxyHeader | None, since: float) -> None:
        """Serve a client that is here since then, or refuse it by its address: that of its header if it has one."""
        if header is not None and header.source is not None:
            address = header.source.host
        reason = self._sessions.refusal(address)
        if reason is None and self._tls is not None:
            self._take_tls(self._tls, accepted, address, header, since)
            return
        if reason is None:
            client = self._make_client(address, header)
            self._sessions.add(client, since)
            self._scope.start(self._serve(accepted, client))
        else:
            self._turn_away(accepted, reason)

    def _turn_away(self, accepted: socket.socket, reason: str) -> None:
        self._counters.rejected_connections += 1
        self._counters.disconnected(DisconnectCause.CONNECTION_LIMIT)
        if self._tls is not None or len(self._lingering) >= MOST_LINGERING:
            # Before the handshake there are no words for a client with TLS.
            accepted.close()
            return
        frame = commands.error(commands.REQUEST_ID_NONE, ServerError.NotAllowedError, reason)
        refused = _Refused(self._loop, frame, self._lingering.discard)
        self._lingering.add(refused)
        self._scope.start(self._refuse(accepted, refused))

    def _take_tls(
        self, arrivals: Arrivals, accepted: socket.socket, address: str, header: ProxyHeader | None, since: float
    ) -> None:
        try:
            self._options.apply(accepted)
            arrivals.take(accepted, address, header, since)
        except OSError:
            # Reset while it waited in the backlog.
            accepted.close()

    async def _serve(self, accepted: socket.socket, client: ClientConnection) -> None:
        try:
            self._options.apply(accepted)
            await self._loop.connect_accepted_socket(lambda: client, accepted)
        except OSError:
            # Reset while it waited in the backlog.
            accepted.close()
            if client.transport is None:
                self._sessions.ended(client, DisconnectCause.CONNECTION_RESET)

    async def _refuse(self, accepted: socket.socket, refused: _Refused) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: refused, accepted)
        except OSError:
            accepted.close()
            self._lingering.discard(refused)

    def _pause(self, error: OSError) -> None:
        """Leave clients in the backlog for a while: an accept that fails would be called again at once, for ever."""
        assert self._socket is not None
        self._counters.accept_pauses += 1
        self._log.warning("accepting paused", reason=error.strerror, seconds=ACCEPT_PAUSE_SECONDS)
        self._loop.remove_reader(self._socket.fileno())
        self._resume = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._continue)

    def _continue(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept_some)
