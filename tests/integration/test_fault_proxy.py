"""What the fault proxy of the tests does to a connection, where the fault matrix would not notice that it does less."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import AsyncClient, Closed, eventually
from tests.support.faults.carried import Carried
from tests.support.faults.kinds import End, Fault, Kind, Point
from tests.support.faults.proxy import FaultProxy
from tests.support.patience import in_time

TEXT = bytes(range(256)) * 40


@dataclass
class Line:
    """A client and a server with a fault proxy in between."""

    way: FaultProxy
    carried: Carried
    client: AsyncClient
    peer: AsyncClient


async def stay(peer: AsyncClient) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def line() -> AsyncIterator[Line]:
    async with raw_broker(stay) as server:
        way = FaultProxy(server.port)
        client = await AsyncClient.open(way.port)
        await eventually(lambda: server.peers, "a connection at the server")
        try:
            yield Line(way, way.connections[0], client, server.peers[0])
        finally:
            client.close()
            await way.close()


def silent(peer: AsyncClient) -> bool:
    """Tell whether there is neither a byte nor an end to read."""
    try:
        peer.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False


async def turns() -> None:
    """Let everybody go on for a moment in which nothing must happen."""
    for _ in range(30):
        await asyncio.sleep(0.001)


async def test_a_rate_lets_no_more_bytes_through_than_the_time_allows() -> None:
    async with line() as at:
        loop = asyncio.get_running_loop()
        at.carried.strike(Fault(Kind.RATE, bytes_per_second=4096))
        began = loop.time()
        await at.client.send(bytes(1024))
        await at.peer.receive(1024)
        # A slow machine makes the bytes later, never earlier; the pause after the last part is not waited for.
        assert loop.time() - began > 1024 / 4096 - 2 * 0.05


async def test_slices_are_segments_of_one_byte() -> None:
    async with line() as at:
        at.carried.strike(Fault(Kind.SLICE))
        await at.peer.send(TEXT[:200])
        assert await at.client.receive(200) == TEXT[:200]
        # TCP_INFO (tcp(7)): tcpi_segs_in, after those of the handshake.
        info = at.client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        assert int.from_bytes(info[140:144], "little") >= 200


async def test_dropped_bytes_are_taken_and_vanish_and_so_does_an_end() -> None:
    async with line() as at:
        at.carried.arm(Fault(Kind.DROP), Point(End.CLIENT, 3))
        # More than the kernel keeps between two sockets: all of it is taken.
        await at.client.send(b"abc" + bytes(32 << 20))
        assert await at.peer.receive(3) == b"abc"
        await at.peer.send(b"into the void")
        at.client.fin()
        await turns()
        assert silent(at.peer)
        assert silent(at.client)
        at.way.lift()
        assert await at.peer.rest() == b""


async def test_half_open_is_an_end_that_is_gone_without_the_others_knowledge() -> None:
    async with line() as at:
        at.carried.strike(Fault(Kind.HALF_OPEN, at=End.TARGET))
        with pytest.raises(Closed, match="reset"):
            await at.peer.receive(1)
        await turns()
        assert silent(at.client)
        with pytest.raises(TimeoutError):
            # Nobody reads: the kernel takes what it has room for.
            async with asyncio.timeout(0.2):
                await asyncio.get_running_loop().sock_sendall(at.client.sock, bytes(64 << 20))
        at.way.cut()
        assert await at.client.rest() == b""


async def test_a_half_close_ends_one_direction_and_the_other_goes_on() -> None:
    async with line() as at:
        at.carried.strike(Fault(Kind.HALF_CLOSE, at=End.CLIENT))
        async with in_time():
            assert await asyncio.get_running_loop().sock_recv(at.peer.sock, 1) == b""
        await at.peer.send(b"answer")
        assert await at.client.receive(6) == b"answer"
        await at.client.send(b"vanishes")
        at.peer.close()
        assert await at.client.rest() == b""
