"""Clients that have many of something: addresses of one network, answers that they do not read."""

from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.core.public_causes import CONNECTIONS_TEXT
from tests.support.clients.async_client import PING, connect_frame
from tests.support.proxies.proxy_under_test import SLOW_READER_RCVBUF, namespace, staged

HERE = HostPort("2001:db8::1", 6650)
PINGS = 3_000_000


@pytest.mark.threat("many-ipv6-addresses")
async def test_all_addresses_of_a_64_bit_network_have_the_connections_of_one() -> None:
    keys: dict[str, Any] = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}
    async with staged(maxConcurrentInboundConnectionsPerIp=3, **keys) as stage:
        for number, host in enumerate(("::1", "::2", "::ffff:1", ":1:2:3:4")):
            client = await stage.client()
            source = HostPort(f"2001:db8:7:9{host}", 40_000)
            await client.send(encode(ProxyHeader(source, HERE), 2) + connect_frame())
            answer = await client.command()
            if number < 3:
                assert answer.type == pb.BaseCommand.CONNECTED, source
            else:
                assert (answer.error.error, answer.error.message) == (
                    ServerError.NotAllowedError,
                    CONNECTIONS_TEXT,
                ), source
        # A neighbour in another network is served.
        client = await stage.client()
        other = ProxyHeader(HostPort("2001:db8:7:a::1", 40_000), HERE)
        await client.send(encode(other, 2) + connect_frame())
        assert (await client.command()).type == pb.BaseCommand.CONNECTED


@pytest.mark.threat("unread-pongs")
async def test_who_does_not_read_pongs_is_not_read_and_takes_no_memory_for_them() -> None:
    async with staged() as stage:
        stage.hear_everything()
        neighbour = await stage.connected()
        client = await stage.connected(SLOW_READER_RCVBUF)
        sent = 0
        while sent < PINGS * len(PING):
            taken = client.flood(PING * 500)
            if not taken:
                # The kernels are full in both directions, and a look later they still are.
                await neighbour.ping()
                await neighbour.ping()
                taken = client.flood(PING * 500)
                if not taken:
                    break
            sent += taken
            await neighbour.ping()
        assert sent < PINGS * len(PING), "expected that the proxy stops reading"
        await neighbour.topics(namespace(0))
