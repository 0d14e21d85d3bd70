"""Floods of small frames on real sockets: each iteration of the loop hears a little of each, and others are served."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import PONG_FRAME, frame, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.request import SmallRequest
from proxy.clients.connection import ClientConnection
from proxy.clients.sessions import LOOKS_A_TURN
from proxy.core import task_turns
from proxy.core.task_turns import CANCEL_MICROS, LEAVING_MICROS, TASKS_PER_TURN
from proxy.net.transport import SMALL_READ_BYTES
from proxy.requests import broker_turns
from proxy.requests.forwarding import ForwardedRequest
from tests.support.brokers.raw_broker import RawBroker, handshake, raw_broker
from tests.support.clients.async_client import LOOPBACK, PING, AsyncClient, lookup_frame, topics_frame
from tests.support.patience import patient
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged

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
    async with staged() as stage:
        stage.hear_everything()
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
    async with staged() as stage:
        client = await stage.connected()
        session = stage.session_of(client)
        await client.send(PONG_FRAME * 2500)
        await stage.until(lambda: session.holds == ("rate",), "a client that is read later")
        await (await stage.connected()).ping()
        await client.ping()
        await stage.until(lambda: session.holds == (), "a client that is read again")


@pytest.mark.threat("unanswered-lookup")
async def test_a_lookup_that_a_broker_leaves_unanswered_ends_no_other() -> None:
    left_topic, topic = f"{TOPIC}-left", TOPIC

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            command = await peer.command()
            if command.type == pb.BaseCommand.PING:
                await peer.send(PONG_FRAME)
            elif command.lookupTopic.topic == topic:
                await peer.send(commands.lookup_connect(request_id_of(command), "pulsar://owner:6650"))

    async with (
        raw_broker(serve) as broker,
        staged(broker_port=broker.port) as stage,
    ):
        stage.give_up_after(patient(1.5), per_key=1)
        left, served = await stage.connected(), await stage.connected()
        await left.send(lookup_frame(1, left_topic))
        counters = stage.proxy.counters
        await stage.until(lambda: counted(counters, "unanswered_broker_questions") == 1, "a question that was given up")
        assert (await served.lookup(topic)).brokerServiceUrl == "pulsar://owner:6650"
        assert len(broker.peers) == 1
        assert stage.caused("broker_silent") == 0


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
        staged(broker_port=broker.port) as stage,
    ):
        stage.change_pool(per_key=1)
        flooders = [await stage.connected() for _ in range(3)]
        neighbour = await stage.client(source=source)
        await neighbour.connect()
        counters, turns = stage.proxy.counters, stage.proxy.services.requests.lookups.forwarder.turns
        for flooder in flooders:
            await flooder.send(b"".join(lookup_frame(number, slow) for number in range(200)))
        await stage.until(
            lambda: counted(counters, "lookups_waiting") == 600 - turns.asked, "lookups that wait for their turn"
        )
        assert turns.asked >= 40
        for _ in range(20):
            assert (await neighbour.lookup(TOPIC)).brokerServiceUrl == found
        await stage.until(
            lambda: counted(counters, "lookups_waiting") == 600 - turns.asked > 500, "the flood's that still wait"
        )
        over.set()
        assert (await neighbour.lookup(TOPIC)).brokerServiceUrl == found
        for flooder in flooders:
            assert {request_id_of(await flooder.answer()) for _ in range(200)} == set(range(200))


CROWD = 30
OTHER_ADDRESS = "127.0.0.2"


# Before the first turn in line an iteration serves what it has time for.
@pytest.mark.threat("lookups-of-many-connections")
@pytest.mark.parametrize(("address", "most"), [(LOOPBACK, 40 + 2 * CROWD), (OTHER_ADDRESS, 40)])
async def test_a_neighbours_lookup_waits_for_few_of_each_connection_of_a_crowd(address: str, most: int) -> None:
    neighbours = f"{TOPIC}-of-the-neighbour"
    async with staged() as stage:
        # It keeps all that are asked.
        stage.broker.record.recent = deque()
        crowd = [await stage.connected() for _ in range(CROWD)]
        neighbour = await stage.client(source=address)
        await neighbour.connect()
        await neighbour.lookup(TOPIC)
        # Time stands still for the budget: only the tasks that a turn starts count, on a slow machine, too.
        stage.proxy.core.loop_budget.now = float
        for client in crowd:
            client.flood(b"".join(lookup_frame(number, TOPIC) for number in range(1, 97)))
        neighbour.flood(lookup_frame(7, neighbours))
        # Without a turn of the loop: a busy kernel could bring the neighbour's behind much of the crowd's.
        for client in (*crowd, neighbour):
            client.deliver()
        assert request_id_of(await neighbour.answer()) == 7
        for client in crowd:
            assert sorted([request_id_of(await client.answer()) for _ in range(96)]) == list(range(1, 97))
        # The first was asked before the crowd came.
        asked = [question.lookupTopic.topic for question in stage.broker.record.commands(CommandType.LOOKUP)][1:]
        assert asked.index(neighbours) <= most


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


@pytest.mark.threat("topic-list-burst")
async def test_a_neighbours_list_is_asked_for_before_most_of_a_burst() -> None:
    async with staged() as stage:
        crowd = [await stage.connected() for _ in range(60)]
        neighbour = await stage.client(source="127.0.0.2")
        await neighbour.connect()
        # A connection to the broker: the burst waits for the loop only.
        await crowd[0].topics(namespace(0))
        # Without a turn of the loop: it hears them all at once.
        for number, client in enumerate(crowd):
            client.send_now(topics_frame(7, f"demo/of-the-crowd-{number}"))
            client.deliver()
        neighbour.send_now(topics_frame(7, "demo/neighbours"))
        neighbour.deliver()
        for client in (*crowd, neighbour):
            await client.answer()
        questions = stage.broker.record.commands(CommandType.GET_TOPICS_OF_NAMESPACE)
        names = [question.getTopicsOfNamespace.namespace for question in questions[-len(crowd) - 1 :]]
        assert names.index("demo/neighbours") < len(crowd) // 2, names


class Iterations:
    """Count the iterations of the loop, and how often something happens in each."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._number = 0
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def note(self) -> None:
        self.counts[self._number] += 1

    def close(self) -> None:
        self._handle.cancel()


def noted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, iterations: Iterations) -> None:
    """Have each call of a function counted: from outside only a clock tells how much one iteration does."""
    function = getattr(where, name)

    def note(*args: Any, **more: Any) -> Any:
        iterations.note()
        return function(*args, **more)

    monkeypatch.setattr(where, name, note)


ASKED_AT_ONCE = 100


@asynccontextmanager
async def lookups_of_a_broker_that_leaves(clients: int) -> AsyncIterator[tuple[Stage, list[AsyncClient], RawBroker]]:
    """Give a stage whose broker has got many lookups on its first connection, and answers on later connections only."""
    peers = count()

    async def serve(peer: AsyncClient) -> None:
        silent = next(peers) == 0
        await handshake(peer)
        while True:
            command = await peer.command()
            if not silent:
                # A test may stop the proxy before it has all answers.
                with suppress(BrokenPipeError, ConnectionResetError):
                    await peer.send(commands.lookup_connect(request_id_of(command), "pulsar://owner:6650"))

    async with (
        raw_broker(serve) as broker,
        staged(broker_port=broker.port) as stage,
    ):
        stage.change_pool(per_key=1)
        asking = [await stage.connected() for _ in range(clients)]
        for client in asking:
            await client.send(b"".join(lookup_frame(number + 1, TOPIC) for number in range(ASKED_AT_ONCE)))
        await stage.until(lambda: stage.outstanding == clients * ASKED_AT_ONCE, "questions at the broker")
        yield stage, asking, broker


@pytest.mark.threat("broker-closes-with-questions")
async def test_when_a_broker_leaves_its_questions_are_asked_again_a_few_in_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lookups_of_a_broker_that_leaves(3) as (_, clients, broker):
        failed = Iterations()
        noted(monkeypatch, SmallRequest, "failed", failed)
        broker.peers[0].fin()
        for client in clients:
            for _ in range(ASKED_AT_ONCE):
                assert (await client.answer()).lookupTopicResponse.brokerServiceUrl == "pulsar://owner:6650"
        failed.close()
        assert failed.counts.total() == 3 * ASKED_AT_ONCE
        # The look at the number of the iteration may come before or behind the turn.
        assert max(failed.counts.values()) <= 2 * TASKS_PER_TURN


@pytest.mark.threat("questions-of-standing-broker")
async def test_when_a_broker_stands_still_its_questions_fail_a_few_in_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        # It leaves every question unanswered, and is there.
        while (await peer.answer(pong=True)).type:
            pass

    async with (
        raw_broker(serve) as broker,
        staged(broker_port=broker.port) as stage,
    ):
        stage.give_up_after(600.0)
        clients = [await stage.connected() for _ in range(3)]
        for client in clients:
            await client.send(b"".join(lookup_frame(number + 1, TOPIC) for number in range(ASKED_AT_ONCE)))
        await stage.until(lambda: stage.outstanding == 3 * ASKED_AT_ONCE, "questions at the broker")
        failed = Iterations()
        noted(monkeypatch, SmallRequest, "failed", failed)
        stage.give_up_after(0.001)
        for client in clients:
            for _ in range(ASKED_AT_ONCE):
                assert (await client.answer()).lookupTopicResponse.error == ServerError.ServiceNotReady
        failed.close()
        # Each may have been asked once more.
        assert failed.counts.total() >= 3 * ASKED_AT_ONCE
        # The look at the number of the iteration may come before or behind the turn.
        assert max(failed.counts.values()) <= 2 * TASKS_PER_TURN


@pytest.mark.threat("lookups-left-behind")
@pytest.mark.parametrize(
    "cut", [AsyncClient.close, AsyncClient.reset, AsyncClient.fin], ids=["FIN", "RST", "half-close"]
)
async def test_when_clients_leave_their_requests_end_a_few_in_an_iteration(
    cut: Callable[[AsyncClient], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lookups_of_a_broker_that_leaves(5) as (stage, clients, broker):
        neighbour, ended = await stage.connected(), Iterations()
        noted(monkeypatch, ForwardedRequest, "cancel", ended)
        for client in clients:
            cut(client)
        await neighbour.ping()
        await stage.until(lambda: ended.counts.total() == 5 * ASKED_AT_ONCE, "the end of all requests")
        ended.close()
        # The look at the number of the iteration may come before or behind the turn.
        assert max(ended.counts.values()) <= 2 * LEAVING_MICROS // CANCEL_MICROS
        # The places of the lookups last until the broker has answered, or is gone.
        broker.peers[0].fin()


@pytest.mark.threat("silent-crowd-times-out")
async def test_silent_clients_whose_time_is_over_at_once_are_cut_a_few_in_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(handshakeTimeoutMillis=600_000) as stage:
        clients = [await stage.client() for _ in range(400)]
        await stage.until(lambda: counted(stage.proxy.counters, "active_connections") == 400, "the crowd")
        cut = Iterations()
        noted(monkeypatch, ClientConnection, "abort", cut)
        stage.change(handshakeTimeoutMillis=1)
        for client in clients:
            assert await client.rest() == b""
        cut.close()
        assert cut.counts.total() == len(clients)
        # The look at the number of the iteration may come before or behind the turn.
        assert max(cut.counts.values()) <= 2 * LOOKS_A_TURN


@pytest.mark.threat("lists-left-at-once")
async def test_hundreds_of_clients_with_lists_that_leave_at_once_leave_nothing_behind() -> None:
    """A broker's restart, or a network fault, on a busy proxy: a chain of their ends is deeper than a stack."""
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        clients = [await stage.connected() for _ in range(400)]
        for client in clients:
            await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.lookups.held == len(clients), "all lists under way")
        for client in clients:
            client.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "all have left")
        await stage.until(lambda: stage.lookups.held == 0, "the ends of their lists")
        gate.set()
        assert counted(stage.proxy.counters, "active_connections") == 0
        assert counted_by(stage.proxy.counters, "internal_errors") == {}


@pytest.mark.threat("lookups-left-behind")
async def test_a_proxy_that_stops_while_clients_leave_ends_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # Behind the first few no request ends any more before the proxy stops.
    monkeypatch.setattr(task_turns, "LEAVING_MICROS", 0)
    async with lookups_of_a_broker_that_leaves(5) as (stage, clients, _):
        leaving = stage.proxy.services.requests.leaving
        for client in clients:
            client.reset()
        await stage.until(lambda: len(leaving) > 0, "requests of clients that have left")
        await stage.proxy.stop(0.0)
        assert (len(leaving), stage.lookups.held) == (0, 0)


@pytest.mark.threat("broker-closes-repeatedly")
async def test_lookups_that_wait_for_their_turn_are_asked_on_a_connection_that_is_open_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 10)
    asked = [0, 0, 0]
    peers = count()

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        # A probe that may come in between never gets here.
        number = next(peers)
        while True:
            command = await peer.command()
            asked[number] += command.type == pb.BaseCommand.LOOKUP
            if number == 2 and command.type == pb.BaseCommand.LOOKUP:
                await peer.send(commands.lookup_connect(request_id_of(command), "pulsar://owner:6650"))

    async with (
        raw_broker(serve) as broker,
        staged(broker_port=broker.port) as stage,
    ):
        stage.change_pool(per_key=1)
        client = await stage.connected()
        await client.send(b"".join(lookup_frame(number + 1, TOPIC) for number in range(ASKED_AT_ONCE)))
        for number in range(2):
            await stage.until(lambda number=number: asked[number] >= 10, "questions at the broker")  # type: ignore[misc]
            broker.peers[number].fin()
        # Nobody's question was lost twice: those that wait were not asked on a connection that is gone.
        for _ in range(ASKED_AT_ONCE):
            assert (await client.answer()).lookupTopicResponse.brokerServiceUrl == "pulsar://owner:6650"
        assert counted_by(stage.proxy.counters, "failed_requests") == {}
