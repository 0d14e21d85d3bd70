"""Receive buffers: of relays towards brokers by a key, of clients on the listener, of request connections in sum."""

import socket
import sys

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.reload import apply
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.target import BrokerAddress
from proxy.config.values import SMALL_RECEIVE_BUFFER_BYTES
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.relay.engine import Relay
from proxy.relay.relay import AsyncioRelay
from tests.integration.test_direct_mode import greet, joined
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import schema_frame
from tests.support.proxies import proxy_under_test
from tests.support.proxies.proxy_under_test import LIST_BYTES, MIB, TOPIC, TOPICS, Stage, namespace, staged

KIB = 1024
BOUND = 100 * KIB


@pytest.fixture(autouse=True)
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have relays whose sockets can be asked."""
    monkeypatch.setitem(proxy_under_test.DEFAULTS, "relayEngine", "asyncio")


def receive_buffers(relay: Relay) -> tuple[int, int]:
    """Give the sizes towards the client and towards the broker, as the kernel doubles them."""
    assert isinstance(relay, AsyncioRelay)
    found = []
    for endpoint in (relay.client, relay.broker):
        assert endpoint.transport is not None
        own = endpoint.transport.get_extra_info("socket")
        found.append(own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
    return found[0], found[1]


def newest(stage: Stage) -> Relay:
    return list(stage.proxy.sessions.all_relays())[-1]


async def test_a_key_bounds_them_towards_brokers_of_relays_only() -> None:
    async with staged(relayReceiveBufferBytes=BOUND, relaySocketMemoryMB=0) as stage, raw_broker(greet) as broker:
        await joined(stage, broker)
        of_client, of_broker = receive_buffers(newest(stage))
        assert of_broker == 2 * BOUND
        assert of_client != 2 * BOUND


async def test_a_bound_on_the_listener_holds_for_later_clients_and_the_older_are_counted() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        ports = stage.proxy.client_ports
        await joined(stage, broker)
        usual, _ = receive_buffers(newest(stage))
        assert ports.older_clients == 0
        ports.bound_received(BOUND)
        await joined(stage, broker)
        bounded, _ = receive_buffers(newest(stage))
        assert (bounded, usual != bounded) == (2 * BOUND, True)
        assert ports.older_clients == 1
        ports.bound_received(2 * BOUND)
        assert ports.older_clients == 1
        ports.bound_received(0)
        await joined(stage, broker)
        again, _ = receive_buffers(newest(stage))
        assert again == usual
        assert ports.older_clients == 0


async def test_a_throttle_that_acts_bounds_them_and_one_that_only_observes_does_not() -> None:
    async with staged(relayClientReceiveBufferBytes=BOUND) as stage, raw_broker(greet) as broker:
        log = open_log("error", "json", sys.stderr.buffer)
        for observes, bounded in (("true", False), ("false", True), ("true", False)):
            keys = {"overloadThrottleEnabled": "true", "overloadThrottleObserveOnly": observes}
            apply(stage.proxy, stage.proxy.config.replace({**keys, "overloadSignals": "proxy"}), log)
            await joined(stage, broker)
            assert (receive_buffers(newest(stage))[0] == 2 * BOUND) is bounded


async def test_a_port_that_opens_later_has_the_bound() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        stage.proxy.client_ports.bound_received(BOUND)
        port = stage.proxy.client_ports.open_for_broker(0, BrokerAddress("127.0.0.1", broker.port), tls=False)
        client = await stage.client(port=port)
        await client.connect()
        assert receive_buffers(newest(stage))[0] == 2 * BOUND


async def test_a_request_connection_is_narrow_until_it_reads_a_large_answer_and_the_sum_is_kept() -> None:
    small = 2 * SMALL_RECEIVE_BUFFER_BYTES
    async with staged(brokerSocketReceiveMemoryMB=2, topicListMaxOutstandingPerBroker=64) as stage:
        pool, client = stage.proxy.broker_side.pool, await stage.connected()
        await client.lookup(TOPIC)
        lookups = set(pool._keys)
        assert {request_buffer(connection) for connection in lookups} == {small}
        for number in range(5):
            assert len((await client.topics(namespace(number))).topics) == TOPICS
        (lists,) = set(pool._keys) - lookups
        wide = request_buffer(lists)
        assert wide > small
        assert {request_buffer(connection) for connection in lookups} == {small}
        assert 0 < pool.buffers.memory.used_bytes <= 2 * MIB
        # Each role or purpose has connections of its own: a schema of the size of a list is such an answer, too.
        schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=bytes(LIST_BYTES))
        stage.broker.answers.schemas[TOPIC] = [schema]
        await client.send(schema_frame(client.next_id(), TOPIC))
        assert len((await client.answer()).getSchemaResponse.schema.schema_data) == LIST_BYTES
        (schemas,) = set(pool._keys) - lookups - {lists}
        assert (request_buffer(lists), request_buffer(schemas)) == (small, wide)
        assert pool.buffers.memory.used_bytes <= 2 * MIB
        lists.abort(DisconnectCause.BROKER_CLOSED)
        schemas.abort(DisconnectCause.BROKER_CLOSED)
        assert pool.buffers.memory.used_bytes == 0


async def test_without_a_sum_request_connections_are_wide_from_their_start() -> None:
    async with staged(brokerSocketReceiveMemoryMB=-1, brokerSocketReceiveBufferBytes=100_000) as stage:
        await (await stage.connected()).lookup(TOPIC)
        assert {request_buffer(connection) for connection in stage.proxy.broker_side.pool._keys} == {200_000}


def request_buffer(connection: BrokerConnection) -> int:
    size: int = connection.own_socket().getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return size
