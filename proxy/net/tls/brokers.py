"""TLS towards brokers: the handshake on a connected socket, for the host name that the client or operator gave."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.net.tls.failures import HANDSHAKES, TlsFailed, failed
from proxy.net.tls.handshake import BROKER_HANDSHAKE_BYTES, STRANGER_HANDSHAKE_BYTES
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig

_P = TypeVar("_P", bound=asyncio.BaseProtocol)


class BrokerTls:
    """Do TLS handshakes with brokers; `current` returns the context in force."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: TlsShared,
        current: Callable[[], "TlsConfig"],
        counters: Counters,
    ) -> None:
        self._loop = loop
        self._shared = shared
        self._current = current
        self._counters = counters

    async def connect(self, sock: socket.socket, host: str, factory: Callable[[], _P], *, made_up: bool = False) -> _P:
        """Complete the handshake on `sock` and return the protocol that `factory` makes; raises TlsFailed.

        The socket belongs to this method from the call on. The broker's certificate must name `host`, whichever of its
        addresses is connected. A host that a client made up may send less before it is known.
        """
        made: asyncio.Future[_P] = self._loop.create_future()

        def make() -> _P:
            protocol = factory()
            if not made.done():
                made.set_result(protocol)
            return protocol

        def fail(failure: TlsFailed) -> None:
            self._counters[HANDSHAKES]["broker", failure.reason] += 1
            if not made.done():
                made.set_exception(failure)

        most = STRANGER_HANDSHAKE_BYTES if made_up else BROKER_HANDSHAKE_BYTES
        try:
            transport = TlsTransport(
                self._shared, self._current(), make, fail, server_hostname=host, handshake_bytes=most
            )
        except ValueError as error:
            # Some names that resolve are not allowed in certificates.
            raise failed(DisconnectCause.TLS_HANDSHAKE_FAILED, error.args) from error
        try:
            await self._loop.create_connection(lambda: transport, sock=sock)
            protocol = await made
        except BaseException:
            # A loop that is told to give up while it connects tells the transport nothing.
            transport.abort()
            raise
        self._counters[HANDSHAKES]["broker", "done"] += 1
        return protocol
