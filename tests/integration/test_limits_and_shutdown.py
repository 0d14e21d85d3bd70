"""How many clients there may be, how long they may dawdle, and how a proxy leaves, as a child process too."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.clients import crowds
from proxy.clients.large_frames import PLACE_BYTES
from proxy.core.public_causes import CONNECTIONS_TEXT
from proxy.net.listen.accept_loop import ACCEPT_PAUSE_SECONDS
from tests.support.auth.credentials import refused
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.brokers.raw_broker import CONNECTED, raw_broker
from tests.support.clients.async_client import (
    AsyncClient,
    connect_frame,
    eventually,
    new_schema_frame,
    topics_frame,
)
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged
from tests.support.proxies.running_proxy import child_proxy

OTHER_ADDRESS = "127.0.0.2"
TOPICS = 100


PLACES = 10
NEVER_SECONDS = 3600


# --- how many -------------------------------------------------------------------------------------


@pytest.mark.threat("curious-stranger")
@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("maxConcurrentInboundConnections", ServerError.ServiceNotReady),
        ("maxConcurrentInboundConnectionsPerIp", ServerError.NotAllowedError),
    ],
)
@pytest.mark.parametrize("kind", [Stage.client, Stage.connected, Stage.relayed])
async def test_one_client_too_many_is_told_why_and_its_place_is_free_when_another_leaves(
    key: str, code: ServerError, kind: Callable[[Stage], Awaitable[AsyncClient]]
) -> None:
    limits: dict[str, Any] = {key: 2}
    async with staged(**limits) as stage:
        first, second = [await kind(stage) for _ in range(2)]
        await stage.until(lambda: len(stage.proxy.sessions) == 2, "two sessions")
        error = await refused(await stage.client())
        assert error.error == code
        # Strangers learn neither the limit nor its key.
        assert error.message == CONNECTIONS_TEXT
        assert stage.caused("connection_limit") == counted(stage.proxy.counters, "rejected_connections") == 1
        first.close()
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "a free place")
        await (await stage.connected()).ping()
        assert len(stage.proxy.sessions) == 2
        assert second.sock.fileno() >= 0


@pytest.mark.threat("silent-connections-fill")
@pytest.mark.parametrize("kind", [Stage.client, Stage.connected])
async def test_connections_of_one_address_that_prove_nothing_keep_no_other_address_out(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[[Stage], Awaitable[AsyncClient]]
) -> None:
    monkeypatch.setattr(crowds, "CONNECT_SECONDS", 0.0)
    monkeypatch.setattr(crowds, "IDLE_SECONDS", 0.0)
    async with staged(maxConcurrentInboundConnections=5) as stage:
        crowd = [await kind(stage) for _ in range(5)]
        await stage.until(lambda: len(stage.proxy.sessions) == 5, "a crowd")
        newcomer = await stage.client(source=OTHER_ADDRESS)
        await newcomer.connect()
        assert (await newcomer.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        assert await crowd[0].rest() == b""
        assert len(stage.proxy.sessions) == 5
        assert stage.caused("connection_limit") == 1
        assert counted(stage.proxy.counters, "rejected_connections") == 0
        # Nobody makes room for the crowd itself.
        late = await stage.client()
        await late.send(connect_frame())
        assert (await refused(late)).error == ServerError.ServiceNotReady


@pytest.mark.threat("many-networks-one-customer")
async def test_a_customer_with_many_ipv6_networks_keeps_no_other_customer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "CONNECT_SECONDS", 0.0)
    monkeypatch.setattr(crowds, "IDLE_SECONDS", 0.0)
    keys: dict[str, Any] = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}

    async def client_of(stage: Stage, address: str) -> AsyncClient:
        client = await stage.client()
        await client.send(encode(ProxyHeader(HostPort(address, 4000), HostPort("2001:db8::1", 6650)), 2))
        return client

    async with staged(maxConcurrentInboundConnections=8, **keys) as stage:
        for number in range(8):
            await (await client_of(stage, f"2001:db8:1:{number // 2:x}::{number}")).connect()
        newcomer = await client_of(stage, "2001:db8:2::1")
        await newcomer.connect()
        assert (await newcomer.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        assert stage.caused("connection_limit") == 1
        # Nobody makes room for another network of the same customer.
        late = await client_of(stage, "2001:db8:1:ffff::1")
        await late.send(connect_frame())
        assert (await refused(late)).error == ServerError.ServiceNotReady


@pytest.mark.threat("neighbours-in-a-site")
async def test_inside_a_customer_the_network_with_most_gives_way_to_its_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crowds, "CONNECT_SECONDS", 0.0)
    monkeypatch.setattr(crowds, "IDLE_SECONDS", 0.0)
    keys: dict[str, Any] = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}
    async with staged(maxConcurrentInboundConnections=6, **keys) as stage:

        async def client_of(address: str) -> AsyncClient:
            client = await stage.client()
            await client.send(encode(ProxyHeader(HostPort(address, 4000), HostPort("2001:db8::1", 6650)), 2))
            return client

        crowd = [await client_of(f"2001:db8:1:1::{number}") for number in range(6)]
        for client in crowd:
            await client.connect()
        newcomer = await client_of("2001:db8:1:2::1")
        await newcomer.connect()
        assert (await newcomer.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        assert await crowd[0].rest() == b""
        late = await client_of("2001:db8:1:1::ffff")
        await late.send(connect_frame())
        assert (await refused(late)).error == ServerError.ServiceNotReady


# --- how long -------------------------------------------------------------------------------------


@pytest.mark.threat("connect-drips")
@pytest.mark.parametrize("sent", [b"", connect_frame()[:-1], connect_frame(auth_data=bytes(60_000))[:30_000]])
async def test_a_client_without_a_whole_connect_is_closed_in_time_and_others_stay(sent: bytes) -> None:
    async with staged() as stage:
        connected = await stage.connected()
        stage.change(handshakeTimeoutMillis=150)
        late = await stage.client()
        await late.send(sent)
        assert await late.rest() == b""
        assert stage.caused("handshake_timeout") == 1
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "one session")
        assert stage.direct.held == 0
        await connected.ping()


async def test_a_client_silent_over_two_intervals_is_closed_and_one_that_answers_pings_stays() -> None:
    # The clock of these tests ticks every 20 ms: an interval of 20 is 0.4 s.
    async with staged(keepAliveIntervalSeconds=20) as stage:
        silent, answering = await stage.connected(), await stage.connected()
        serving = asyncio.get_running_loop().create_task(answering.answer(pong=True))
        assert (await silent.command()).type == pb.BaseCommand.PING
        assert await silent.rest() == b""
        assert stage.caused("keep_alive_timeout") == 1
        assert len(stage.proxy.sessions) == 1
        # Only an answer ends `serving`: it has answered each PING so far.
        await answering.ask_topics(namespace(0))
        assert (await serving).type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


@pytest.mark.threat("large-frame-drips")
async def test_a_large_frame_that_trickles_ends_by_its_clock_and_gives_its_permit_back() -> None:
    async with staged(topicListRequestTimeoutMillis=patient_millis(1000)) as stage:
        whole = await stage.connected()
        await whole.send(new_schema_frame(1, TOPIC, 100_000))
        assert (await whole.answer()).type == pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE
        frame = new_schema_frame(1, TOPIC, 100_000)
        trickling, sent = await stage.connected(), 5000
        await trickling.send(frame[:sent])
        await stage.until(lambda: stage.frames.held == PLACE_BYTES, "a part that is charged")

        def closed_after_one_more_byte() -> bool:
            nonlocal sent
            with suppress(ConnectionError):
                sent += trickling.send_now(frame[sent : sent + 1])
            return stage.caused("read_timeout") == 1

        await stage.until(closed_after_one_more_byte, "one closed for its trickle")
        assert sent > 5001
        assert stage.frames.held == 0
        # The clock of a frame that became whole has stopped with it.
        await whole.ping()
        assert len(stage.proxy.sessions) == 1


# --- a proxy of its own ---------------------------------------------------------------------------


def readable(client: AsyncClient) -> bool:
    """Tell whether something has come for this client."""
    try:
        return bool(client.sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


@pytest.mark.threat("out-of-descriptors")
async def test_without_descriptors_accepting_pauses_without_spinning_and_goes_on_later(tmp_path: Path) -> None:
    async with EmbeddedBroker(GeneratedTopics(1, TOPICS, 100)) as broker, child_proxy(tmp_path, broker) as proxy:
        limit = proxy.descriptors() + PLACES
        resource.prlimit(proxy.child.pid, resource.RLIMIT_NOFILE, (limit, limit))
        clients = [await proxy.client() for _ in range(2 * PLACES)]
        for client in clients:
            await client.send(connect_frame())
        await eventually(lambda: proxy.said("accepting paused") >= 1, "a pause")
        loop = asyncio.get_running_loop()
        since, spent = loop.time(), proxy.cpu_seconds()
        seen = proxy.said("accepting paused")
        await eventually(lambda: proxy.said("accepting paused") >= seen + 3, "more pauses")
        assert loop.time() - since >= 2 * ACCEPT_PAUSE_SECONDS
        assert proxy.cpu_seconds() - spent <= 0.2 * (loop.time() - since)
        served = [client for client in clients if readable(client)]
        # A file that the proxy has open for a moment, as when it looks at its memory, may be counted in the limit.
        assert PLACES - 2 <= len(served) < len(clients)
        # Nobody is turned away: those in the backlog come in when others leave.
        for client in served:
            await client.command()
            await client.ping()
            client.close()
        for client in clients:
            if client not in served:
                assert (await client.command()).type == pb.BaseCommand.CONNECTED
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0


@pytest.mark.parametrize("cut", [0, 7])
async def test_a_request_that_has_arrived_when_a_drain_looks_is_answered(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.clients.sessions.LINGER_SECONDS", NEVER_SECONDS)
    async with staged() as stage:
        client, idle = await stage.connected(), await stage.connected()
        request = topics_frame(1, namespace(0))
        sent = len(request) - cut

        async def drain() -> None:
            # In one step of the loop: the kernel has the bytes, and nobody has read them.
            assert client.send_now(request[:sent]) == sent
            client.deliver()
            await stage.proxy.sessions.drain(2 * NEVER_SECONDS)

        draining = asyncio.get_running_loop().create_task(drain())
        assert await idle.rest() == b""
        if cut:
            await client.send(request[sent:])
        assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) > TOPICS
        assert await client.rest() == b""
        await draining


async def test_a_client_whose_broker_has_not_answered_when_a_drain_begins_becomes_a_relay() -> None:
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow(peer: AsyncClient) -> None:
        await peer.command()
        asked.set()
        await answers.wait()
        await peer.send(CONNECTED)
        await peer.send(await peer.receive(7))
        await peer.rest()

    async with staged() as stage, raw_broker(slow) as broker:
        client, idle = await stage.client(), await stage.connected()
        await client.send(connect_frame(f"127.0.0.1:{broker.port}"))
        await asked.wait()
        draining = asyncio.get_running_loop().create_task(stage.proxy.sessions.drain(2 * NEVER_SECONDS))
        assert await idle.rest() == b""
        answers.set()
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        await client.send(b"goes on")
        assert await client.receive(7) == b"goes on"
        client.close()
        await draining
