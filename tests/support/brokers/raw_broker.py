"""Own a broker of a few lines that does to each connection what a test's coroutine says: for faults no broker has.

Rule: it knows bytes only; what the embedded broker can do wrong is asked of that one.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from protocol.commands import frame, request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.tasks import TaskScope
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed

CONNECTED = frame(
    pb.BaseCommand(
        type=pb.BaseCommand.CONNECTED,
        connected=pb.CommandConnected(server_version="raw", protocol_version=21, max_message_size=5 * 1024 * 1024),
    )
)
Serve = Callable[[AsyncClient], Awaitable[None]]
# What a broker's connections are unless a test says so: with TLS in tests that run with it, too.
PEER: Callable[[socket.socket], AsyncClient] = AsyncClient


@dataclass
class RawBroker:
    """Where the broker listens, and the connections it has accepted, oldest first."""

    port: int
    peers: list[AsyncClient] = field(default_factory=list)


@asynccontextmanager
async def raw_broker(
    serve: Serve,
    make_peer: Callable[[socket.socket], AsyncClient] | None = None,
    host: str = LOOPBACK,
    port: int = 0,
) -> AsyncIterator[RawBroker]:
    """Run `serve` for each connection; it ends with the connection, which is closed when `serve` returns.

    With a `make_peer` it is served from the first byte of its socket.
    """
    listening = socket.create_server((host, port), backlog=64)
    listening.setblocking(False)
    crashes: list[BaseException] = []
    scope = TaskScope(crashes.append)
    broker = RawBroker(listening.getsockname()[1])

    async def one(peer: AsyncClient) -> None:
        try:
            if make_peer is None:
                await peer.shake()
            await serve(peer)
        except (Closed, ConnectionError, ssl.SSLError):
            # A proxy that stops may leave while it is being answered.
            pass
        finally:
            peer.close()

    async def accept() -> None:
        loop = asyncio.get_running_loop()
        while True:
            accepted, _ = await loop.sock_accept(listening)
            accepted.setblocking(False)
            broker.peers.append((make_peer or PEER)(accepted))
            scope.start(one(broker.peers[-1]))

    scope.start(accept())
    try:
        yield broker
    finally:
        scope.cancel()
        await scope.emptied()
        listening.close()
    assert not crashes, crashes


async def handshake(peer: AsyncClient) -> pb.CommandConnect:
    """Answer CONNECT with CONNECTED."""
    command = await peer.command()
    assert command.type == pb.BaseCommand.CONNECT
    await peer.send(CONNECTED)
    return command.connect


async def request(peer: AsyncClient) -> pb.BaseCommand:
    """Give the next command that is no PING, answering PINGs."""
    while (command := await peer.command()).type == pb.BaseCommand.PING:
        await peer.send(frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())))
    return command


async def silence(peer: AsyncClient) -> None:
    """Say nothing until the other side leaves."""
    await peer.rest()


def empty_list(command: pb.BaseCommand) -> bytes:
    """Answer a topic-list request with no topics."""
    return list_answer(request_id_of(command), ())


def list_answer(request_id: int, topics: tuple[str, ...]) -> bytes:
    """Build a topic-list answer by protobuf alone."""
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=request_id, topics=topics)
    return frame(
        pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)
    )
