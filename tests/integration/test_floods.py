"""Floods of small frames on real sockets: each iteration of the loop hears a little of each, and others are served."""

import asyncio
from contextlib import suppress
from itertools import count

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import PONG_FRAME, frame, request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.connection import ClientConnection
from proxy.net.transport import SMALL_READ_BYTES
from proxy.requests import broker_turns
from tests.support.brokers.raw_broker import handshake, raw_broker
from tests.support.clients.async_client import LOOPBACK, PING, AsyncClient, lookup_frame
from tests.support.proxies.proxy_under_test import TOPIC, staged

FLOW = frame(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))
FLOODS = {"pong": PONG_FRAME, "ping": PING, "flow": FLOW}
FLOOD_BYTES = 1 << 20


class Watched:
    """Note the most bytes that a client's connection got in an iteration of the loop."""

    def __init__(self, session: ClientConnection) -> None:
        self.session = session
        self.most = 0
        self._seen = session.received_bytes

    def look(self) -> None:
        self.most = max(self.most, self.session.received_bytes - self._seen)
        self._seen = self.session.received_bytes


def take(client: AsyncClient) -> None:
    """Read what is there: a client that does not take its answers is not heard."""
    with suppress(BlockingIOError):
        while client.sock.recv(1 << 16):
            pass


@pytest.mark.threat("small-frame-flood")
@pytest.mark.parametrize("kind", FLOODS)
async def test_an_iteration_hears_little_of_a_flood_and_others_are_served(kind: str) -> None:
    async with staged(maxUnansweredCommandsPerSecond=0) as stage:
        neighbour = await stage.connected()
        data = FLOODS[kind] * 5000
        clients = [await stage.connected() for _ in range(5)]
        watched = [Watched(stage.session_of(client)) for client in clients]
        while not all(one.session.received_bytes >= FLOOD_BYTES for one in watched):
            for client, one in zip(clients, watched, strict=True):
                client.flood(data)
                take(client)
                one.look()
            await asyncio.sleep(0)
        # The loop may look at its sockets once more between two looks of this test.
        assert max(one.most for one in watched) <= 3 * SMALL_READ_BYTES
        for client in clients:
            client.flood(data)
        await neighbour.ping()
        assert (await neighbour.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


@pytest.mark.threat("unanswered-commands")
async def test_a_client_that_sends_pongs_too_fast_is_read_later_and_not_closed() -> None:
    async with staged(maxUnansweredCommandsPerSecond=100) as stage:
        client = await stage.connected()
        session = stage.session_of(client)
        await client.send(PONG_FRAME * 250)
        await stage.until(lambda: session.holds == ("rate",), "a client that is read later")
        await (await stage.connected()).ping()
        await client.ping()
        assert session.holds == ()


# --- pipelined lookups ----------------------------------------------------------------------------


@pytest.mark.threat("pipelined-lookups")
@pytest.mark.parametrize("source", [LOOPBACK, "127.0.0.2"], ids=["of the same network", "of another"])
async def test_a_neighbours_lookup_is_asked_at_once_beside_slow_ones_of_a_flood(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 40)
    slow, found, over = "persistent://public/default/slow", "pulsar://owner:6650", asyncio.Event()
    kept: list[int] = []

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            command = await peer.command()
            if command.type != pb.BaseCommand.LOOKUP:
                continue
            kept.append(request_id_of(command))
            if over.is_set() or command.lookupTopic.topic != slow:
                answered = kept if over.is_set() else kept[-1:]
                await peer.send(b"".join(commands.lookup_connect(number, found) for number in answered))
                del kept[-len(answered) :]

    async with (
        raw_broker(serve) as broker,
        staged(broker_port=broker.port, brokerConnectionsPerKey=1) as stage,
    ):
        flooders = [await stage.connected() for _ in range(3)]
        neighbour = await stage.client(source=source)
        await neighbour.connect()
        counters, turns = stage.proxy.counters.requests, stage.proxy.services.requests.lookups.forwarder.turns
        for flooder in flooders:
            await flooder.send(b"".join(lookup_frame(number, slow) for number in range(200)))
        await stage.until(lambda: counters.lookups_waiting == 600 - turns.asked, "lookups that wait for their turn")
        assert turns.asked >= 40
        for _ in range(20):
            assert (await neighbour.lookup(TOPIC)).brokerServiceUrl == found
        assert counters.lookups_waiting == 600 - turns.asked > 500
        over.set()
        assert (await neighbour.lookup(TOPIC)).brokerServiceUrl == found
        for flooder in flooders:
            assert {request_id_of(await flooder.answer()) for _ in range(200)} == set(range(200))


@pytest.mark.threat("pipelined-lookups")
async def test_the_last_places_are_not_for_a_client_that_has_many() -> None:
    async with staged(maxConcurrentLookupRequests=100) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        flooders = [await stage.connected() for _ in range(4)]
        for flooder in flooders:
            await flooder.send(b"".join(lookup_frame(number, TOPIC) for number in range(100)))
        await stage.until(lambda: all(stage.session_of(each).holds for each in flooders), "flooders that are not read")
        neighbour = await stage.connected()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(neighbour.lookup(TOPIC))
            await stage.until(lambda: stage.session_of(neighbour).outstanding == 1, "the neighbour's lookup")
            gate.set()
        assert asked.result().response == pb.CommandLookupTopicResponse.Connect
        for flooder in flooders:
            answers = [await flooder.answer() for _ in range(100)]
            assert {answer.type for answer in answers} == {pb.BaseCommand.LOOKUP_RESPONSE}
            assert not any(answer.lookupTopicResponse.HasField("error") for answer in answers)


ASKED_AT_ONCE = 100


@pytest.mark.threat("broker-closes-repeatedly")
async def test_lookups_that_wait_for_their_turn_are_asked_on_a_connection_that_is_open_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 10)
    asked = [0, 0, 0]
    peers = count()

    async def serve(peer: AsyncClient) -> None:
        number = next(peers)
        await handshake(peer)
        while True:
            command = await peer.command()
            asked[number] += command.type == pb.BaseCommand.LOOKUP
            if number == 2 and command.type == pb.BaseCommand.LOOKUP:
                await peer.send(commands.lookup_connect(request_id_of(command), "pulsar://owner:6650"))

    async with (
        raw_broker(serve) as broker,
        staged(broker_port=broker.port, brokerConnectionsPerKey=1) as stage,
    ):
        client = await stage.connected()
        await client.send(b"".join(lookup_frame(number + 1, TOPIC) for number in range(ASKED_AT_ONCE)))
        for number in range(2):
            await stage.until(lambda number=number: asked[number] >= 10, "questions at the broker")  # type: ignore[misc]
            broker.peers[number].fin()
        # Nobody's question was lost twice: those that wait were not asked on a connection that is gone.
        for _ in range(ASKED_AT_ONCE):
            assert (await client.answer()).lookupTopicResponse.brokerServiceUrl == "pulsar://owner:6650"
        assert stage.proxy.counters.requests.failed_requests == {}
