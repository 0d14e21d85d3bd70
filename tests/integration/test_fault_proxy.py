"""What the fault proxy of the tests does to a connection, where the fault matrix would not notice that it does less."""

import asyncio
import socket

from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import AsyncClient, eventually
from tests.support.faults.kinds import Fault, Kind
from tests.support.faults.proxy import FaultProxy


async def stay(peer: AsyncClient) -> None:
    await asyncio.Event().wait()


async def test_slices_are_segments_of_one_byte_and_a_rate_takes_its_time() -> None:
    loop = asyncio.get_running_loop()
    async with raw_broker(stay) as server:
        way = FaultProxy(server.port)
        client = await AsyncClient.open(way.port)
        await eventually(lambda: server.peers, "a connection at the server")
        carried, peer = way.connections[0], server.peers[0]
        carried.strike(Fault(Kind.SLICE))
        await peer.send(bytes(range(200)))
        assert await client.receive(200) == bytes(range(200))
        # TCP_INFO (tcp(7)): tcpi_segs_in, after those of the handshake.
        info = client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        assert int.from_bytes(info[140:144], "little") >= 200
        carried.strike(Fault(Kind.RATE, bytes_per_second=4096))
        began = loop.time()
        await client.send(bytes(1024))
        await peer.receive(1024)
        # A slow machine makes the bytes later, never earlier; the pause after the last part is not waited for.
        assert loop.time() - began > 1024 / 4096 - 2 * 0.05
        client.close()
        await way.close()
