"""The connections to brokers that requests share: how they end, and where lookups are sent."""

import asyncio

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.clocks import BrokerClocks
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.script import Redirect
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.brokers.raw_broker import (
    CONNECTED,
    Serve,
    handshake,
    raw_broker,
)
from tests.support.clients.async_client import AsyncClient, schema_frame
from tests.support.loops.loops import virtual
from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    TOPIC,
    namespace,
    staged,
)
from tests.support.sockets.ports import free_port

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


async def test_all_questions_on_a_broken_connection_are_asked_again() -> None:
    async with staged() as stage:
        stage.change_pool(per_key=1)
        gate = stage.broker.script.hold(LISTS)
        clients = [await stage.connected() for _ in range(4)]
        for number, client in enumerate(clients):
            await client.ask_topics(namespace(number))
        # What the broker has not read goes with its socket, and would never be counted twice.
        await stage.broker.record.seen(LISTS, 4)
        for session in list(stage.broker.connections):
            session.abort()
        await stage.broker.record.seen(LISTS, 8)
        gate.set()
        for client in clients:
            assert (await client.answer()).type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
        assert counted(stage.proxy.counters, "lists_asked_again") == 4


async def test_a_redirect_is_followed_with_its_authority() -> None:
    async with EmbeddedBroker(GeneratedTopics(20, 1, 100)) as owner, staged() as stage:
        stage.broker.script.redirects.append(Redirect(owner.service_url, authoritative=True))
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.brokerServiceUrl == owner.service_url
        assert answer.proxy_through_service_url
        asked = owner.record.commands(CommandType.LOOKUP)[0].lookupTopic
        assert (asked.topic, asked.authoritative) == (TOPIC, True)


@pytest.mark.threat("lookup-redirects-elsewhere")
async def test_a_redirect_to_a_broker_that_is_not_allowed_is_an_error() -> None:
    async with staged(brokerProxyAllowedTargetPorts="6650") as stage:
        stage.broker.script.redirects.append(Redirect("pulsar://127.0.0.1:9999"))
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.error == ServerError.ServiceNotReady
        assert answer.message == "target port 9999 is not in brokerProxyAllowedTargetPorts"
        # The operator's own broker needs no permission.
        assert (await client.lookup(TOPIC)).brokerServiceUrl == stage.broker.service_url


@pytest.mark.parametrize("url", ["", "http://broker:8080", "pulsar+ssl://broker:6651", "pulsar://"])
async def test_a_redirect_to_nowhere_is_an_error(url: str) -> None:
    async with staged() as stage:
        stage.broker.script.redirects.append(Redirect(url))
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.error in (ServerError.ServiceNotReady, ServerError.MetadataError)
        await client.ping()


async def test_a_broker_that_restarts_serves_the_next_request_within_a_second() -> None:
    # No port that the kernel gives away: while nobody listens, somebody else might get it.
    port = free_port()
    broker, successor = (EmbeddedBroker(GeneratedTopics(20, 10, 100)) for _ in range(2))
    await broker.start(port)
    async with staged(broker_port=port) as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        await client.lookup(TOPIC)
        await broker.stop()
        assert (await client.refused_topics(namespace(0))).error == ServerError.ServiceNotReady
        await successor.start(port)
        async with in_time(1.0):
            assert len((await client.topics(namespace(0))).topics) == 10
            assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        await successor.stop()


def spoiling_broker(seconds: float | None, fault: bytes) -> Serve:
    """Serve a broker that spoils its connections behind CONNECTED, at once or a moment later.

    It closes them, or breaks the protocol with `fault` and leaves the close to the proxy.
    """

    async def serve(peer: AsyncClient) -> None:
        assert (await peer.command()).type == pb.BaseCommand.CONNECT
        await peer.send(CONNECTED + fault if seconds is None else CONNECTED)
        if seconds is not None:
            await asyncio.sleep(seconds)
            await peer.send(fault)
        if fault:
            await peer.rest()

    return serve


FAULTS = {
    "a close": b"",
    "a second CONNECTED": CONNECTED,
    "garbage": b"\0\0\0\x06\0\0\0\x02\xff\xff",
    "a frame that is too large": b"\xff\xff\xff\xff",
}


# No pause: the end arrives with CONNECTED; 0: behind it, before a question can be asked.
@pytest.mark.parametrize("seconds", [None, 0, 0.001, 0.02])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@virtual
async def test_a_broker_that_spoils_its_connections_behind_connected_is_dialled_with_pauses_and_clients_are_told(
    fault: bytes, seconds: float | None
) -> None:
    async with (
        raw_broker(spoiling_broker(seconds, fault)) as broker,
        staged(broker_port=broker.port) as stage,
    ):
        clients = [await stage.connected() for _ in range(10)]
        async with in_time(3.0):
            for _ in range(3):
                async with asyncio.TaskGroup() as group:
                    lists = [group.create_task(client.refused_topics(namespace(0))) for client in clients[::2]]
                    lookups = [group.create_task(client.lookup(TOPIC)) for client in clients[1::2]]
                codes = [ended.result().error for ended in lists] + [ended.result().error for ended in lookups]
                assert set(codes) == {ServerError.ServiceNotReady}
        # Probes are counted, too.
        assert len(broker.peers) <= 50


async def test_a_broker_that_stops_answering_pings_is_closed() -> None:
    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        await peer.rest()

    async with raw_broker(serve) as broker, staged(broker_port=broker.port, keepAliveIntervalSeconds=1) as stage:
        client = await stage.connected()
        await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.caused("keep_alive_timeout") >= 1, "a broker that answered no PING")


async def test_a_connection_nobody_uses_is_closed() -> None:
    async with staged() as stage:
        stage.change_pool(clocks=BrokerClocks(keep_alive_seconds=0, answer_timeout_seconds=30.0, idle_seconds=0.05))
        client = await stage.connected()
        await client.topics(namespace(0))
        await stage.until(
            lambda: stage.caused("idle") >= 1 and not stage.proxy.broker_side.pool.size, "no broker connection"
        )
        await client.topics(namespace(0))


async def test_a_schema_lost_with_its_connection_is_asked_for_once_more() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.GET_SCHEMA)
        client = await stage.connected()
        await client.send(schema_frame(1, TOPIC))
        await stage.broker.record.seen(CommandType.GET_SCHEMA)
        for connection in list(stage.broker.connections):
            connection.abort()
        await stage.broker.record.seen(CommandType.GET_SCHEMA, 2)
        gate.set()
        answer = await client.answer()
        assert answer.type in (CommandType.GET_SCHEMA_RESPONSE, CommandType.ERROR)
        assert "connection" not in answer.error.message
