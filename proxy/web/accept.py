"""Accept the connections of one web port: a bounded number, at a bounded pace, with small kernel buffers.

Rules: a connection beyond `maxHttpServerConnections` replaces another one, chosen by what their hosts have
(`connection_places.py`), on all listeners of a server together: so nobody keeps a probe out. The PROXY header and the
TLS handshake have a time limit, and count as a connection that waits for its first request.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from protocol.errors import MalformedFrame
from proxy.core.addresses import host_network
from proxy.core.counters import ACCEPT_PAUSES, Counters
from proxy.core.errors import DisconnectCause
from proxy.core.tasks import TaskScope, do_nothing
from proxy.net.listen.accept_loop import AcceptLoop
from proxy.net.proxy_headers import peeked_header, read_proxy_header
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.web.forward.settings import WebLimits

if TYPE_CHECKING:
    from proxy.net.tls.streams import TlsStreams
    from proxy.web.connection import HttpServer

BACKLOG: Final = 128
ACCEPTS_A_TURN: Final = 16
HANDSHAKE_SECONDS: Final = 10.0


def bound_buffers(listening: socket.socket, limits: WebLimits) -> None:
    """Bound the kernel's buffers of the connections of a web port: a read returns at most the receive buffer's size."""
    # The kernel doubles the size that is set here.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.buffer_bytes)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)


class _Opening:
    """A connection that does not speak HTTP yet; `cancel` ends its task."""

    __slots__ = ("cancel", "host", "is_cut")

    answered = False

    def __init__(self, address: str) -> None:
        self.host = host_network(address)
        self.cancel: Callable[[], object] = do_nothing
        self.is_cut = False

    def cut(self) -> None:
        """End the connection at once."""
        self.is_cut = True
        self.cancel()


class HttpListener:
    """Accept connections from one listening socket until closed.

    `tls` does the TLS handshake of each connection. `balancers` may name the client's address.
    """

    def __init__(
        self,
        server: "HttpServer",
        counters: Counters,
        limits: WebLimits,
        *,
        tls: "TlsStreams | None" = None,
        balancers: TrustedBalancers | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._counters = counters
        self._limits = limits
        self._tls = tls
        self._balancers = balancers
        self._scope = TaskScope(lambda error: counters.internal_error(error, "web accept"))
        self._accepting = AcceptLoop(self._loop, ACCEPTS_A_TURN, self._take, self._count_pause)

    def adopt(self, listening: socket.socket) -> None:
        """Accept connections from a listening socket, which belongs to this listener from now on."""
        self._accepting.adopt(listening)

    def stop_accepting(self) -> None:
        """Stop accepting; connections that do not speak HTTP yet go on."""
        self._accepting.close()

    async def close(self) -> None:
        """Stop accepting, and end the connections that do not speak HTTP yet."""
        self._accepting.close()
        self._scope.cancel()
        await self._scope.emptied()

    def _take(self, accepted: socket.socket, address: str) -> None:
        places, opening = self._server.places, _Opening(self._told(accepted, address))
        if places.all_used:
            self._counters.disconnected(DisconnectCause.CONNECTION_LIMIT)
            if not self._server.make_room(opening.host):
                accepted.close()
                return
        places.waits(opening)
        opening.cancel = self._scope.start(
            self._serve(accepted, address, opening), partial(self._opened, accepted, opening)
        )

    def _told(self, accepted: socket.socket, address: str) -> str:
        """Return the address of a client by its PROXY header, if that is there already."""
        if self._balancers is None or address not in self._balancers:
            return address
        # Clients behind one balancer would end one another's connections for its newcomers.
        header = peeked_header(accepted)
        return address if header is None or header.source is None else header.source.host

    def _opened(self, accepted: socket.socket, opening: _Opening) -> None:
        self._server.places.forget(opening)
        if opening.is_cut:
            # The task may have been cancelled before its first step, which would have closed the socket.
            accepted.close()

    async def _serve(self, accepted: socket.socket, address: str, opening: _Opening) -> None:
        try:
            self._limits.sockets.apply(accepted)
            until = self._loop.time() + HANDSHAKE_SECONDS
            async with asyncio.timeout_at(until):
                if self._balancers is not None and address in self._balancers:
                    header = await read_proxy_header(self._loop, accepted)
                    if header is not None and header.source is not None:
                        address = header.source.host
                if self._tls is None:
                    await self._loop.connect_accepted_socket(lambda: self._connection(address, opening), accepted)
            if self._tls is not None:
                await self._tls.accept(accepted, address, until, lambda: self._connection(address, opening))
        except (OSError, TimeoutError, MalformedFrame):
            # The client sent no valid TLS or PROXY header, or has left: there is nothing to answer.
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _connection(self, address: str, opening: _Opening) -> asyncio.Protocol:
        connection = self._server()
        connection.accepted_from, connection.opening = address, opening
        return connection

    def _count_pause(self, _: OSError) -> None:
        self._counters[ACCEPT_PAUSES].value += 1
