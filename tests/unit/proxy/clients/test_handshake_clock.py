"""One clock runs from accept to CONNECT, through the PROXY header and the TLS handshake: stages do not add up."""

import asyncio
import errno
import io
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.app.metrics.counters import Counters
from proxy.brokers.dialer import SocketOptions
from proxy.clients.connection import ClientConnection
from proxy.clients.listener import Listener
from proxy.clients.sessions import SessionLimits, Sessions
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.net.listen.listening import ListeningSockets, PortPurpose, port_of
from proxy.net.proxy_headers import HeaderWaits
from proxy.net.tls.arrivals import Arrivals
from proxy.net.tls.shared import TlsShared
from proxy.net.trusted_balancers import TrustedBalancers
from tests.support.clients.async_client import LOOPBACK, AsyncClient
from tests.support.loops.loops import eventually, run_virtual

HANDSHAKE_SECONDS = 10.0
HEADER = encode(ProxyHeader(HostPort("203.0.113.7", 40_000), HostPort("198.51.100.1", 6650)), 1)


class Silent(asyncio.Protocol):
    """A client that is known by its address and sends nothing more."""

    def __init__(self, door: "Door", address: str) -> None:
        self.detail = ""
        self._door = door
        self._transport: asyncio.Transport | None = None
        self.client_address = self.name = address
        self.detail = ""
        self.transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._door.adopted = True
        self._transport = cast(asyncio.Transport, transport)

    def abort(self, cause: DisconnectCause) -> None:
        assert self._transport is not None
        self._transport.abort()
        self._door.sessions.ended(cast(ClientConnection, self), cause)


class Door:
    """A port behind a balancer."""

    def __init__(self, *, tls: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.adopted = False
        self.counters = Counters(DisconnectCause)
        log = open_log("debug", "json", io.BytesIO())
        self.sessions = Sessions(self.loop, self.counters.clients, log, SessionLimits(0, 0, HANDSHAKE_SECONDS, 0, 0.0))
        # No client here begins a handshake: it needs no keys.
        nothing, shared = cast(Any, None), TlsShared(LoopBudget(self.loop, self.loop.time))
        self.arrivals = (
            Arrivals(self.loop, shared, nothing, 1, self.sessions, nothing, self.counters.tls, log) if tls else None
        )
        self.listener = Listener(
            self.loop,
            self.sessions,
            self.counters.clients,
            self.counters.net,
            log,
            SocketOptions(0, 1, 1, 0),
            lambda address, header: cast(ClientConnection, Silent(self, address)),
            self.arrivals,
            waits=HeaderWaits(self.counters.net),
            balancers=TrustedBalancers(["*"]),
        )
        (opened,) = ListeningSockets().listen((LOOPBACK,), 0, PortPurpose("servicePort"), 10)
        self.listener.adopt(opened)
        self.port = port_of(opened)

    @property
    def served(self) -> bool:
        """Tell whether somebody owns the client whose header was read."""
        return self.adopted if self.arrivals is None else len(self.arrivals) == 1

    async def close(self) -> None:
        await self.listener.close()
        if self.arrivals is not None:
            await self.arrivals.close()


@asynccontextmanager
async def door(*, tls: bool) -> AsyncIterator[tuple[Door, AsyncClient]]:
    """Give a port, and a client that it has accepted and that has sent nothing yet."""
    opened = Door(tls=tls)
    client = AsyncClient(socket.create_connection((LOOPBACK, opened.port)))
    client.sock.setblocking(False)
    try:
        await eventually(lambda: opened.counters.net.awaited_headers, "a client without a header")
        yield opened, client
    finally:
        client.close()
        await opened.close()


@pytest.mark.parametrize("tls", [False, True])
def test_a_header_that_came_late_leaves_the_rest_of_the_clock_only(tls: bool) -> None:
    async def main() -> None:
        async with door(tls=tls) as (opened, client):
            accepted = opened.loop.time()
            await asyncio.sleep(HANDSHAKE_SECONDS - 1)
            await client.send(HEADER)
            await eventually(lambda: opened.served, "a client with its header read")
            await opened.sessions.tick(accepted + HANDSHAKE_SECONDS - 0.1)
            assert len(opened.sessions) == 1
            await opened.sessions.tick(accepted + HANDSHAKE_SECONDS + 0.1)
            assert len(opened.sessions) == 0
            assert opened.counters.shared.disconnects[DisconnectCause.HANDSHAKE_TIMEOUT] == 1

    run_virtual(main())


class FullEpoll:
    """A set of sockets with no place for one more."""

    closed = False

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def register(self, fd: int, events: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        self.closed = True


def test_a_tls_client_that_the_kernel_cannot_watch_leaves_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with door(tls=True) as (opened, client):
            assert opened.arrivals is not None
            epoll = opened.arrivals._epoll
            monkeypatch.setattr(opened.arrivals, "_epoll", FullEpoll(epoll.fileno()))
            await client.send(HEADER)
            assert await client.rest() == b""
            assert (len(opened.sessions), len(opened.arrivals)) == (0, 0)
            monkeypatch.undo()

    run_virtual(main())


def test_a_header_that_never_comes_costs_one_clock() -> None:
    async def main() -> None:
        async with door(tls=False) as (opened, client):
            accepted = opened.loop.time()
            assert await client.rest() == b""
            assert opened.loop.time() - accepted == pytest.approx(HANDSHAKE_SECONDS, abs=0.1)
            assert opened.counters.shared.disconnects[DisconnectCause.HANDSHAKE_TIMEOUT] == 1

    run_virtual(main())
