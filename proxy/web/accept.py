"""Accept the connections of one web port: a bounded number, at a bounded pace, with small kernel buffers.

Rules: a connection beyond `maxHttpServerConnections` replaces the connection that has been idle the longest, else the
oldest that does not speak HTTP yet, of the network with most of those, else the one that has been taking a page the
longest. There is one of these as fewer connections than all may have a request that is passed on
(`connection_places.py`): so nobody keeps a probe out. The PROXY header and the TLS handshake have a time limit, and
count as a connection.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from protocol.errors import MalformedFrame
from proxy.core.addresses import host_network
from proxy.core.errors import DisconnectCause
from proxy.core.key_members import KeyMembers
from proxy.core.tasks import TaskScope
from proxy.net.listen.accept_loop import AcceptLoop
from proxy.net.proxy_headers import read_proxy_header
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.web.forward.settings import WebLimits
from proxy.web.http.counters import WebCounters

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


class HttpListener:
    """Accept connections from one listening socket until closed.

    `tls` does the TLS handshake of each connection. `balancers` may name the client's address.
    """

    def __init__(
        self,
        server: "HttpServer",
        counters: WebCounters,
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
        # Connections that do not speak HTTP yet, each with the callback that ends it, and by the network that they are
        # accepted from.
        self._opening: dict[socket.socket, Callable[[], object]] = {}
        self._networks: KeyMembers[str, socket.socket] = KeyMembers()
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
        if len(self._server.connections) + len(self._scope) >= self._limits.max_connections:
            self._counters.disconnected(DisconnectCause.CONNECTION_LIMIT)
            if not self._make_room():
                accepted.close()
                return
        self._networks.add(host_network(address), accepted)
        self._opening[accepted] = self._scope.start(self._serve(accepted, address), partial(self._opened, accepted))

    def _opened(self, accepted: socket.socket) -> None:
        if not self._networks.remove(accepted):
            # The task may have been cancelled before its first step, which would have closed the socket.
            accepted.close()
        self._opening.pop(accepted, None)

    def _make_room(self) -> bool:
        """End a connection for which nothing is passed on; return whether there was one."""
        if self._server.end_longest_idle():
            return True
        for crowd in self._networks.largest():
            oldest = next(iter(crowd))
            self._networks.remove(oldest)
            self._opening.pop(oldest)()
            return True
        return self._server.end_longest_resting()

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        try:
            self._limits.sockets.apply(accepted)
            until = self._loop.time() + HANDSHAKE_SECONDS
            async with asyncio.timeout_at(until):
                if self._balancers is not None and address in self._balancers:
                    header = await read_proxy_header(self._loop, accepted)
                    if header is not None and header.source is not None:
                        address = header.source.host
                if self._tls is None:
                    await self._loop.connect_accepted_socket(lambda: self._connection(address), accepted)
            if self._tls is not None:
                await self._tls.accept(accepted, address, until, lambda: self._connection(address))
        except (OSError, TimeoutError, MalformedFrame):
            # The client sent no valid TLS or PROXY header, or has left: there is nothing to answer.
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _connection(self, address: str) -> asyncio.Protocol:
        connection = self._server()
        connection.accepted_from = address
        return connection

    def _count_pause(self, _: OSError) -> None:
        self._counters.shared.accept_pauses += 1
