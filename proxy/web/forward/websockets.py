"""Tunnel WebSockets: the opening request is checked and rewritten like any other, then bytes pass in both directions.

Rules: frames are not parsed, so close codes, pings and extensions pass between client and broker. Each direction holds
at most its window. A tunnel ends when either side ends, when nothing has passed for `httpProxyTimeout`, when the
client's credentials have expired, or for another tunnel if there are too many. A request for a tunnel holds a place of
the gate only until the tunnel is open. Each end of a tunnel is counted by its cause.

asyncio's streams ask for no turn: an iteration would read every tunnel that has bytes, and run a task for each piece.
When the time of an iteration is spent, a tunnel is not read on until its turn among the frames of clients comes: turns
by key (a principal, or an address without one), then by tunnel.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Hashable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from yarl import URL

from proxy.brokers.dialer import connect_socket
from proxy.brokers.target import BrokerAddress, resolve
from proxy.config.core import Core
from proxy.core.errors import BrokerUnavailable, DisconnectCause, TargetRefused
from proxy.core.key_members import KeyMembers
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.web.forward.answer_writer import BODY_BYTES
from proxy.web.forward.broker_client import socket_for, write_at_once
from proxy.web.forward.headers import UnsafeHeader, to_client
from proxy.web.forward.upstreams import SERVER_FAILURES
from proxy.web.http.clients import Guard, WebClient
from proxy.web.http.endings import end
from proxy.web.http.errors import HttpRefused, count_answer
from proxy.web.http.upgrades import TUNNELS, is_websocket

if TYPE_CHECKING:
    from aiohttp._websocket.reader import WebSocketReader

    from proxy.web.forward.reverse_proxy import ReverseProxy
    from proxy.web.forward.routes import Destination

TLS_SHUTDOWN_SECONDS: Final = 1.0
# Passing a piece takes about this long: two steps of a task, a write, and what the socket brings.
PIECE_SECONDS: Final = 0.0001


class _StreamTurns:
    """The turns of one tunnel, whose key is `key`."""

    __slots__ = ("_budget", "_key")

    def __init__(self, budget: LoopBudget, key: Hashable) -> None:
        self._budget = budget
        self._key = key

    def arrived(self, reader: asyncio.StreamReader) -> None:
        """Stop reading, if the time of this iteration is spent: libuv reads a socket up to 32 times in one."""
        if self._budget.spent():
            _rest(reader)

    async def wait(self, reader: asyncio.StreamReader) -> None:
        """Wait for the turn of a piece that was read from `reader`, which is not read meanwhile."""
        if self._budget.spent():
            _rest(reader)
            await self._budget.client_turn(self._key, PIECE_SECONDS)


class _FromClient:
    """Receives the client's bytes of a tunnel, in the place of aiohttp's WebSocket parser."""

    def __init__(self, reader: asyncio.StreamReader, turns: _StreamTurns) -> None:
        self._reader = reader
        self._turns = turns

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Pass the client's bytes to the stream reader."""
        if data:
            self._reader.feed_data(data)
            self._turns.arrived(self._reader)
        return False, b""

    def feed_eof(self) -> None:
        """Called at the client's FIN."""
        self._reader.feed_eof()


class WebSocketTunnels:
    """Opens tunnels to the servers of a reverse proxy's routes."""

    def __init__(self, core: Core, reverse_proxy: "ReverseProxy", guard: Guard | None) -> None:
        self._counters, self._loop_budget = core.counters, core.loop_budget
        self._reverse_proxy = reverse_proxy
        self._guard = guard
        self._open_tunnels = _OpenTunnels(reverse_proxy.limits.max_tunnels)

    def asked_for(self, request: web.BaseRequest) -> bool:
        """Return whether a request wants to open a WebSocket."""
        headers = request.headers
        options = [option.strip().lower() for option in headers.get("Connection", "").split(",")]
        return request.method == "GET" and "upgrade" in options and is_websocket(headers)

    async def serve(
        self,
        request: web.BaseRequest,
        client: WebClient,
        destination: "Destination",
        leave_gate: Callable[[], None],
    ) -> web.StreamResponse:
        """Open a tunnel and wait until it ends; raises HttpRefused if the tunnel cannot be opened."""
        writer: asyncio.StreamWriter | None = None
        try:
            # The method that the opening names keeps the certificate from being the client's credential.
            names_role = client.role is not None and not destination.to_third_party
            reader, writer, url = await self._connected(request, destination, names_role=names_role)
            head = await self._asked(request, client, destination, url, reader, writer)
            leave_gate()
            return await self._join(request, client, reader, writer, head)
        finally:
            if writer is not None:
                end(writer.transport)

    async def _asked(
        self,
        request: web.BaseRequest,
        client: WebClient,
        destination: "Destination",
        url: URL,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bytes:
        """Ask the broker to open a WebSocket, and return the head of the answer for the client; raises HttpRefused."""
        try:
            async with asyncio.timeout(self._reverse_proxy.limits.connect_seconds):
                writer.write(await self._opening(request, client, destination, url))
                head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
            raise HttpRefused(502, "the broker did not answer the opening of a websocket", "broken") from error
        if not head.startswith(b"HTTP/1.1 101 "):
            raise _not_opened(head)
        return _answer_to_client(head, cookies=destination.to_third_party)

    async def _connected(
        self, request: web.BaseRequest, destination: "Destination", *, names_role: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, URL]:
        servers, key = self._reverse_proxy.servers(destination)
        path = destination.asked_path(request.raw_path)
        for server in servers.in_turn():
            url = URL(server + path, encoded=True)
            assert url.host is not None
            try:
                async with asyncio.timeout(self._reverse_proxy.limits.connect_seconds):
                    target = BrokerAddress(url.host, url.port or 80)
                    reader, writer = await self._open(target, tls=url.scheme == "https", certificate=names_role)
            except (OSError, TargetRefused, BrokerUnavailable, TimeoutError):
                servers.failed(server)
                self._counters[SERVER_FAILURES].value += 1
                continue
            servers.worked(server)
            return reader, writer, url
        raise self._reverse_proxy.unreachable(servers, key, names_role=names_role)

    async def _open(
        self, target: BrokerAddress, *, tls: bool, certificate: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failure: OSError | None = None
        for address in await resolve(target):
            context = self._context(certificate=certificate) if tls else None
            try:
                reader, writer = await self._connect(address, target, context)
            except OSError as error:
                failure = error
                continue
            write_at_once(writer.transport)
            return reader, writer
        raise failure or BrokerUnavailable(f"{target} has no address")

    def _context(self, *, certificate: bool) -> ssl.SSLContext:
        current = self._reverse_proxy.side.tls_client
        return ssl.create_default_context() if current is None else current(certificate)

    async def _connect(
        self, address: str, target: BrokerAddress, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        limits = self._reverse_proxy.limits
        connecting = socket_for(limits, socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            await connect_socket(asyncio.get_running_loop(), connecting, (address, target.port))
            tls: dict[str, Any] = {}
            if context is not None:
                tls = {"ssl": context, "server_hostname": target.host, "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS}
            return await asyncio.open_connection(sock=connecting, limit=limits.buffer_bytes // 2, **tls)
        except BaseException:
            connecting.close()
            raise

    async def _opening(
        self, request: web.BaseRequest, client: WebClient, destination: "Destination", url: URL
    ) -> bytes:
        try:
            headers = await self._reverse_proxy.websocket_headers(request, client, destination)
        except UnsafeHeader as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        headers = [("Host", url.raw_authority), ("Connection", "Upgrade"), ("Upgrade", "websocket"), *headers]
        lines = [f"GET {url.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")

    async def _join(
        self,
        request: web.BaseRequest,
        client: WebClient,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: bytes,
    ) -> web.StreamResponse:
        transport, connection = request.transport, request.protocol
        if transport is None:
            raise ConnectionResetError("the client is gone")
        transport.set_write_buffer_limits(high=0)
        from_client = asyncio.StreamReader(limit=self._reverse_proxy.limits.buffer_bytes // 2)
        # A full reader pauses the socket.
        from_client.set_transport(transport)
        transport.write(head)
        turns = _StreamTurns(self._loop_budget, client.turn_key)
        connection.set_parser(cast("WebSocketReader", _FromClient(from_client, turns)))
        counters = self._counters
        count_answer(counters, 101)
        counters[TUNNELS].value += 1
        limits = self._reverse_proxy.limits
        crashed = partial(counters.internal_error, where="web")
        tunnel = _Tunnel(client.turn_key, turns, limits.exchange_seconds, limits.buffer_bytes, crashed)
        self._open_tunnels.enter(tunnel)
        watch = _CredentialsWatch(self._guard, client, partial(tunnel.end, DisconnectCause.CREDENTIALS_EXPIRED))
        try:
            await tunnel.run(from_client, writer, reader, request)
        finally:
            self._open_tunnels.leave(tunnel)
            watch.stop()
            counters.disconnected(tunnel.cause)
            counters[TUNNELS].value -= 1
            counters[BODY_BYTES]["to_broker"] += tunnel.to_broker
            counters[BODY_BYTES]["to_client"] += tunnel.to_client
            end(transport)
        return _Done(tunnel.to_client)


class _Tunnel:
    """The two directions of a tunnel, which end together."""

    def __init__(
        self,
        key: Hashable,
        turns: _StreamTurns,
        idle_seconds: float,
        step_bytes: int,
        crashed: Callable[[BaseException], object],
    ) -> None:
        self.key = key
        self._crashed = crashed
        self._turns = turns
        self.active_at = asyncio.get_running_loop().time()
        self._cause: DisconnectCause | None = None
        self._idle_seconds = idle_seconds
        self._step_bytes = step_bytes
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.to_broker = 0
        self.to_client = 0

    @property
    def cause(self) -> DisconnectCause:
        """Return why the tunnel has ended."""
        return self._cause or DisconnectCause.INTERNAL_ERROR

    def end(self, cause: DisconnectCause) -> None:
        """End both directions; the first cause counts."""
        self._cause = self._cause or cause
        if not self._over.done():
            self._over.set_result(None)

    def give_way(self) -> None:
        """End both directions for another tunnel."""
        self.end(DisconnectCause.GAVE_WAY)

    async def run(
        self,
        from_client: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        request: web.BaseRequest,
    ) -> None:
        """Pass bytes until either side has ended, or no byte has passed for the idle time."""
        scope = TaskScope(self._broke_off)
        try:
            async with asyncio.timeout(self._idle_seconds) as clock:
                scope.start(self._to_broker(from_client, to_broker, clock))
                scope.start(self._to_client(from_broker, request, clock))
                await self._over
        except TimeoutError:
            self.end(DisconnectCause.IDLE)
        except asyncio.CancelledError:
            # The client's connection is lost, or the web port closes.
            self.end(DisconnectCause.CLIENT_CLOSED if request.transport is None else DisconnectCause.SHUTDOWN)
            raise
        finally:
            scope.cancel()
            await scope.emptied()

    def _broke_off(self, error: BaseException) -> None:
        if isinstance(error, OSError):
            self.end(DisconnectCause.CONNECTION_RESET)
        else:
            self._crashed(error)
            self.end(DisconnectCause.INTERNAL_ERROR)

    def _goes_on(self, clock: asyncio.Timeout) -> None:
        self.active_at = asyncio.get_running_loop().time()
        # Bytes may come in the turn in which the idle time ends, and a clock that has struck cannot be put forward.
        if not clock.expired():
            clock.reschedule(self.active_at + self._idle_seconds)

    async def _to_broker(
        self, from_client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, clock: asyncio.Timeout
    ) -> None:
        while piece := await from_client.read(self._step_bytes):
            await self._turns.wait(from_client)
            to_broker.write(piece)
            await to_broker.drain()
            self.to_broker += len(piece)
            self._goes_on(clock)
        self.end(DisconnectCause.CLIENT_CLOSED)

    async def _to_client(
        self, from_broker: asyncio.StreamReader, request: web.BaseRequest, clock: asyncio.Timeout
    ) -> None:
        while piece := await from_broker.read(self._step_bytes):
            await self._turns.wait(from_broker)
            if (transport := request.transport) is None:
                self.end(DisconnectCause.CLIENT_CLOSED)
                return
            transport.write(piece)
            await request.writer.drain()
            self.to_client += len(piece)
            self._goes_on(clock)
        self.end(DisconnectCause.BROKER_CLOSED)


class _OpenTunnels:
    """The open tunnels, at most `limit`: a new one is let in, and the least used of the busiest key ends.

    A key has no limit of its own: behind a balancer or NAT all clients may have the same address.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: KeyMembers[Hashable, _Tunnel] = KeyMembers()

    def enter(self, tunnel: _Tunnel) -> None:
        """Add a tunnel; if all places are taken, end the longest idle tunnel of the key with most."""
        while len(self._open) >= self._limit:
            idle = min(chain.from_iterable(self._open.largest()), key=lambda each: each.active_at)
            self.leave(idle)
            idle.give_way()
        self._open.add(tunnel.key, tunnel)

    def leave(self, tunnel: _Tunnel) -> None:
        """Forget a tunnel that ends; a second call does nothing."""
        self._open.remove(tunnel)


class _CredentialsWatch:
    """Ends a tunnel when the credentials of its client have expired: nobody could renew them on a WebSocket.

    The wall clock is looked at every `authenticationRefreshCheckSeconds`, as for clients of the binary protocol.
    """

    def __init__(self, guard: Guard | None, client: WebClient, end_tunnel: Callable[[], None]) -> None:
        self._guard = guard
        self._client = client
        self._end_tunnel = end_tunnel
        self._timer: asyncio.TimerHandle | None = None
        if guard is not None and client.expires_at is not None:
            self._wait(guard)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, guard: Guard) -> None:
        self._timer = asyncio.get_running_loop().call_later(guard.verifier.settings.refresh_seconds, self._look, guard)

    def _look(self, guard: Guard) -> None:
        if guard.expired(self._client):
            self._end_tunnel()
        else:
            self._wait(guard)


class _Done(web.StreamResponse):
    """The response object of a tunnel, whose bytes were all written already."""

    def __init__(self, sent_bytes: int) -> None:
        super().__init__(status=101)
        self._sent_bytes = sent_bytes

    @property
    def body_length(self) -> int:
        """Return the bytes sent to the client."""
        return self._sent_bytes

    async def prepare(self, request: web.BaseRequest) -> None:
        """Skip: the headers were written when the tunnel opened."""
        return

    async def write_eof(self, data: bytes = b"") -> None:
        """Skip: the tunnel has ended."""
        return


def _answer_to_client(head: bytes, *, cookies: bool) -> bytes:
    """Return the 101 response for the client, made from the broker's response."""
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:] if line]
    given = [(name.decode("latin-1"), value.strip().decode("latin-1")) for name, _, value in lines]
    try:
        headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), *to_client(given, cookies=cookies)]
    except UnsafeHeader as error:
        raise HttpRefused(502, f"the broker's {error}", "bad_answer") from error
    text = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 101 Switching Protocols\r\n{text}\r\n".encode("latin-1")


def _not_opened(head: bytes) -> HttpRefused:
    """Return the error for a refused WebSocket, with the broker's status but not its text."""
    status = head.partition(b"\r\n")[0].split(b" ")[1:2]
    number = int(status[0]) if status and status[0].isdigit() else 502
    number = number if 400 <= number < 600 else 502
    return HttpRefused(number, f"the broker refused the websocket with status {number}", "websocket")


def _rest(reader: asyncio.StreamReader) -> None:
    """Pause the socket of a reader, until the next `read` that finds the reader as good as empty."""
    # As the reader does by itself when it is full: no public method pauses a reader so that it resumes by itself.
    state: Any = reader
    if state._transport is not None and not state._paused and not state._transport.is_closing():
        state._transport.pause_reading()
        state._paused = True
