"""A broker that sends PINGs and reads nothing makes nothing grow here."""

import asyncio

from proxy.brokers.connection import BrokerConnection
from tests.support.brokers.raw_broker import empty_list, handshake, raw_broker, request
from tests.support.clients.async_client import PING, AsyncClient
from tests.support.proxies.proxy_under_test import namespace, staged

PINGS = 20_000


async def test_one_pong_at_most_waits_for_a_broker_that_does_not_read() -> None:
    read_on = asyncio.Event()

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        await peer.send(empty_list(await request(peer)))
        for _ in range(40):
            await peer.send(PING * PINGS)
        await read_on.wait()
        await peer.rest()

    async with raw_broker(serve) as broker, staged(broker_port=broker.port) as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        (connection,) = stage.proxy.broker_side.pool._keys
        assert isinstance(connection, BrokerConnection)
        await stage.until(lambda: connection._pong_deferred, "a PONG that waits")
        transport = connection.transport
        assert transport is not None
        unsent = transport.get_write_buffer_size()
        for _ in range(50):
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() == unsent <= 64
        read_on.set()
        await stage.until(lambda: not connection._pong_deferred and not connection.write_pending, "the PONG has left")
