"""A broker that sends PINGs and reads nothing makes nothing grow here."""

import asyncio
import socket
from contextlib import suppress

from proxy.brokers.connection import BrokerConnection
from tests.support.brokers.raw_broker import empty_list, handshake, raw_broker, request
from tests.support.clients.async_client import PING, AsyncClient
from tests.support.proxies.proxy_under_test import namespace, staged

# A PONG answers all PINGs of a read, so that it takes many PINGs, or little room, until a PONG waits.
PINGS = 20_000
ROOM_BYTES = 4096


async def test_one_pong_at_most_waits_for_a_broker_that_does_not_read() -> None:
    may_flood, read_on = asyncio.Event(), asyncio.Event()

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        await peer.send(empty_list(await request(peer)))
        await may_flood.wait()
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        # The proxy may end while PINGs are under way.
        with suppress(ConnectionError):
            for _ in range(40):
                await peer.send(PING * PINGS)
            await read_on.wait()
            await peer.rest()

    async with raw_broker(serve) as broker, staged(broker_port=broker.port) as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        (connection,) = stage.proxy.broker_side.pool._keys
        assert isinstance(connection, BrokerConnection)
        transport = connection.transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)
        may_flood.set()
        await stage.until(lambda: connection._pong_deferred, "a PONG that waits")
        for _ in range(50):
            await asyncio.sleep(0)
            assert transport.get_write_buffer_size() <= 64
        read_on.set()
        await stage.until(lambda: not connection._pong_deferred and not connection.write_pending, "the PONG has left")
