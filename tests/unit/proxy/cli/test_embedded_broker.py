"""The embedded broker's own promises: its names, its faults, its books. What it shares with Pulsar, the conformance
transcripts show.
"""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
import uvloop

from protocol import commands
from protocol.command_type import CommandType
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo.broker import EmbeddedBroker
from proxy.cli.demo.names import PIECE_BYTES
from proxy.cli.demo.topics import GeneratedTopics, ListedTopics, topic_list
from proxy.cli.demo.watchers import MOST_WATCHERS, Watchers

TOPIC = "persistent://public/default/t1"


class Client:
    """A client whose reads wait for the loop, never for the clock."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()

    def send(self, **command: object) -> None:
        self.writer.write(commands.frame(pb.BaseCommand(**command)))  # type: ignore[arg-type]

    async def receive(self) -> pb.BaseCommand:
        while not isinstance(event := self._decoder.next_event(), Frame):
            data = await self.reader.read(65536)
            assert data, "closed by the broker"
            self._decoder.receive_data(data)
        return commands.decode_command(event.command)

    async def connect(self, version: int = 21) -> pb.BaseCommand:
        self.send(
            type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="test", protocol_version=version)
        )
        return await self.receive()

    def ask_topics(self, request_id: int = 1, namespace: str = "public/default") -> None:
        question = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace)
        self.send(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=question)

    def look_up(self, request_id: int = 1) -> None:
        self.send(type=pb.BaseCommand.LOOKUP, lookupTopic=pb.CommandLookupTopic(request_id=request_id, topic=TOPIC))

    def ping(self) -> None:
        self.send(type=pb.BaseCommand.PING, ping=pb.CommandPing())


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(ListedTopics([TOPIC])) as running:
        yield running


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    yield Client(reader, writer)
    writer.close()


def decoded(pieces: bytes) -> pb.CommandGetTopicsOfNamespaceResponse:
    return pb.CommandGetTopicsOfNamespaceResponse.FromString(b"\x08\x01" + pieces)


# ---- Names ----


@pytest.mark.parametrize("name_bytes", [40, 100, 127, 128, 500])
def test_generated_names_have_the_length_asked_for_and_their_namespace(name_bytes: int) -> None:
    store = GeneratedTopics(namespaces=20, topics=1500, name_bytes=name_bytes)
    body = topic_list(store, pb.CommandGetTopicsOfNamespace(request_id=1, namespace="demo/ns-07"))
    pieces = list(body.pieces)
    answer = decoded(b"".join(pieces))
    assert body.rest_bytes == sum(map(len, pieces))
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert len(set(answer.topics)) == 1500
    assert list(answer.topics) == list(store.names("demo/ns-07"))
    assert all(len(name) == name_bytes and name.startswith("persistent://demo/ns-07/t-") for name in answer.topics)
    assert (answer.filtered, answer.changed) == (False, True)


def test_a_generated_list_has_no_memory_of_its_own() -> None:
    store = GeneratedTopics(namespaces=4000, topics=10_000, name_bytes=100)
    gc.collect()
    before = len(gc.get_objects())
    kept = [topic_list(store, question("demo/ns-" + f"{number:04}")) for number in range(1000)]
    assert all(body.rest_bytes > 1_000_000 for body in kept)
    assert len(gc.get_objects()) - before < 20 * len(kept)


def question(namespace: str, **fields: object) -> pb.CommandGetTopicsOfNamespace:
    return pb.CommandGetTopicsOfNamespace(request_id=1, namespace=namespace, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [28, 5000])
def test_names_that_cannot_have_the_length_asked_for_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"got {size} name bytes, expected 29 to 4096"):
        GeneratedTopics(namespaces=1, topics=10_000, name_bytes=size)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("demo/ns/a.*", ["persistent://demo/ns/a1", "persistent://demo/ns/a2-partition-0"]),
        ("^persistent://demo/ns/a2", ["persistent://demo/ns/a2-partition-0"]),
        ("non-persistent://demo/ns/a.", ["persistent://demo/ns/a1", "persistent://demo/ns/a2-partition-0"]),
        ("a1", []),
    ],
)
def test_a_pattern_loses_its_domain_and_matches_whole_names(pattern: str, expected: list[str]) -> None:
    store = ListedTopics(["persistent://demo/ns/a1", "persistent://demo/ns/b1"], {"persistent://demo/ns/a2": 1})
    body = topic_list(store, question("demo/ns", topics_pattern=pattern))
    answer = decoded(b"".join(body.pieces))
    assert list(answer.topics) == expected
    assert answer.filtered


# ---- Requests ----


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x05\0\0\0\x01\xff", b"\xff" * 12])
async def test_garbage_closes_that_connection_only(broker: EmbeddedBroker, client: Client, data: bytes) -> None:
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    writer.write(data)
    assert await reader.read() == b""
    writer.close()
    assert (await client.connect()).type == pb.BaseCommand.CONNECTED


# ---- Faults ----


async def test_a_gate_holds_one_type_and_lets_the_others_pass(broker: EmbeddedBroker, client: Client) -> None:
    gate = broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
    await client.connect()
    client.ask_topics(1)
    client.ask_topics(2)
    client.ping()
    assert (await client.receive()).type == pb.BaseCommand.PONG
    assert broker.record.outstanding_topic_questions == 2
    gate.set()
    answers = [(await client.receive()).getTopicsOfNamespaceResponse for _ in range(2)]
    assert [(answer.request_id, list(answer.topics)) for answer in answers] == [(1, [TOPIC]), (2, [TOPIC])]
    assert broker.record.max_outstanding_topic_questions == 2


async def test_a_client_that_does_not_read_costs_one_piece() -> None:
    async with EmbeddedBroker(GeneratedTopics(1, 10_000, 100)) as broker:
        reader, writer = await asyncio.open_connection(broker.host, broker.port, limit=1024)
        client = Client(reader, writer)
        await client.connect()
        for request_id in range(100):
            client.ask_topics(request_id, "demo/ns-0")
        await broker.record.seen(CommandType.GET_TOPICS_OF_NAMESPACE, 100)
        (session,) = broker.connections
        assert session.unsent_bytes <= PIECE_BYTES
        assert broker.record.outstanding_topic_questions > 0
        writer.close()


async def test_the_record_is_bounded(broker: EmbeddedBroker, client: Client) -> None:
    await client.connect()
    for _ in range(300):
        client.ping()
    await broker.record.seen(CommandType.PING, 300)
    assert len(broker.record.recent) == broker.record.recent.maxlen == 256
    assert broker.record.commands(CommandType.CONNECT) == []


def test_an_answer_in_the_turn_of_a_cut_ends_with_its_connection() -> None:
    """On uvloop, where a write to a transport that has just closed raises RuntimeError."""

    async def cut_as_the_gate_opens() -> None:
        async with EmbeddedBroker(ListedTopics([TOPIC])) as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
            client = Client(reader, writer)
            await client.connect()
            gate = broker.script.hold(CommandType.LOOKUP)
            client.look_up()
            client.ping()
            assert (await client.receive()).type == pb.BaseCommand.PONG
            (session,) = broker.connections
            session.abort()
            gate.set()
            await broker.all_left()
            writer.close()

    uvloop.run(cut_as_the_gate_opens())


# ---- Watchers ----


def started(watchers: Watchers, watcher_id: int, pattern: str = ".*") -> pb.BaseCommand:
    request = pb.CommandWatchTopicList(
        request_id=5, watcher_id=watcher_id, namespace="public/default", topics_pattern=pattern
    )
    decoder = FrameDecoder()
    decoder.receive_data(b"".join(watchers.start(request)))
    event = decoder.next_event()
    assert isinstance(event, Frame)
    return commands.decode_command(event.command)


def test_the_watchers_of_a_connection_are_bounded() -> None:
    watchers = Watchers(ListedTopics())
    for watcher_id in range(MOST_WATCHERS):
        assert started(watchers, watcher_id).type == pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS
    assert started(watchers, MOST_WATCHERS).type == pb.BaseCommand.ERROR
    # The same watcher id again is a refresh.
    assert started(watchers, 0).type == pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS
    assert len(watchers) == MOST_WATCHERS


def test_an_update_goes_to_the_watchers_it_matters_to() -> None:
    watchers = Watchers(ListedTopics())
    for watcher_id, pattern in enumerate(("public/default/a.*", "public/default/b.*", ".*")):
        started(watchers, watcher_id, pattern)
    frames = list(watchers.updates(["persistent://public/default/a1"], ["persistent://other/ns/b1"]))
    updates = [commands.decode_command(frame[8:]).watchTopicUpdate for frame in frames]
    assert [(update.watcher_id, list(update.new_topics)) for update in updates] == [
        (0, ["persistent://public/default/a1"]),
        (2, ["persistent://public/default/a1"]),
    ]
    assert not any(update.deleted_topics for update in updates)
