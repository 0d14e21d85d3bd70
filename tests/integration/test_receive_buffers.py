"""Receive buffers: of clients on the listener, of request connections by what clients may have."""

import os
import socket
import sys
from contextlib import suppress
from typing import Any

from proxy.app.reload import apply
from proxy.brokers.target import BrokerAddress
from proxy.core.log import open_log
from proxy.overload.bounds import RECEIVED_BYTES
from tests.integration.test_direct_mode import greet, joined
from tests.support.brokers.raw_broker import raw_broker
from tests.support.proxies.proxy_under_test import TOPIC, namespace, staged

KIB = 1024
BOUND = 100 * KIB


def receive_buffers() -> dict[tuple[Any, Any], int]:
    """Give the size of each connected socket of this process by its two addresses, as the kernel doubles it."""
    found, directory = {}, "/proc/self/fd/"
    for name in os.listdir(directory):
        # Neither the descriptor of this look nor a listening socket.
        with suppress(OSError):
            if os.readlink(directory + name).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as each:
                    if each.family is socket.AF_INET:
                        size = each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                        found[each.getsockname(), each.getpeername()] = size
    return found


def opposite(end: socket.socket) -> int:
    """Give the size of the socket that a test's own is connected to."""
    return receive_buffers()[end.getpeername(), end.getsockname()]


def towards(port: int) -> dict[Any, int]:
    """Give the sizes of all sockets that are connected to a port."""
    return {own: size for (own, peer), size in receive_buffers().items() if peer[1] == port}


async def test_a_bound_on_the_listener_holds_for_later_clients_and_the_older_are_counted() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        ports = stage.proxy.client_ports
        usual = opposite((await joined(stage, broker)).client.sock)
        assert ports.older_clients == 0
        ports.bound_received(BOUND)
        bounded = opposite((await joined(stage, broker)).client.sock)
        assert (bounded, usual != bounded) == (2 * BOUND, True)
        assert ports.older_clients == 1
        ports.bound_received(2 * BOUND)
        assert ports.older_clients == 1
        ports.bound_received(0)
        assert opposite((await joined(stage, broker)).client.sock) == usual
        assert ports.older_clients == 0


async def test_a_throttle_that_acts_bounds_them_and_one_that_only_observes_does_not() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        log = open_log("error", "json", sys.stderr.buffer)
        with socket.socket() as each:
            # The kernel may grant less.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
            granted = each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        for observes, bounded in (("true", False), ("false", True), ("true", False)):
            keys = {"overloadThrottleEnabled": "true", "overloadThrottleObserveOnly": observes}
            apply(stage.proxy, stage.proxy.config.replace({**keys, "overloadSignals": "proxy"}), log)
            pair = await joined(stage, broker)
            assert (opposite(pair.client.sock) == granted) is bounded


async def test_a_port_that_opens_later_has_the_bound() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        stage.proxy.client_ports.bound_received(BOUND)
        port = stage.proxy.client_ports.open_for_broker(0, BrokerAddress("127.0.0.1", broker.port), tls=False)
        client = await stage.client(port=port)
        await client.connect()
        assert opposite(client.sock) == 2 * BOUND


async def test_a_port_that_opens_again_has_the_bound() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        ports = stage.proxy.client_ports
        ports.bound_received(BOUND)
        await ports.close()
        ports.reopen()
        assert opposite((await joined(stage, broker)).client.sock) == 2 * BOUND


async def test_request_connections_have_four_times_what_clients_may_have() -> None:
    async with staged(clientSocketSendBufferBytes=25_000) as stage:
        client = await stage.connected()
        await client.lookup(TOPIC)
        assert set(towards(stage.broker.port).values()) == {200_000}
        stage.change(clientSocketSendBufferBytes=50_000)
        await client.topics(namespace(0))
        assert set(towards(stage.broker.port).values()) == {200_000, 400_000}


async def test_beyond_a_third_of_all_request_connections_have_once_what_clients_may_have() -> None:
    async with staged(clientSocketSendBufferBytes=25_000, brokerConnectionsTotal=5) as stage:
        client = await stage.connected()
        await client.lookup(TOPIC)
        await client.topics(namespace(0))
        assert sorted(towards(stage.broker.port).values()) == [50_000, 200_000]


async def test_a_smaller_total_leaves_the_large_buffer_to_a_third_of_it() -> None:
    async with staged(clientSocketSendBufferBytes=25_000, brokerConnectionsTotal=6) as stage:
        client = await stage.connected()
        await client.lookup(TOPIC)
        await client.topics(namespace(0))
        assert sorted(towards(stage.broker.port).values()) == [200_000, 200_000]
        stage.change(brokerConnectionsTotal=3)
        assert sorted(towards(stage.broker.port).values()) == [50_000, 200_000]
