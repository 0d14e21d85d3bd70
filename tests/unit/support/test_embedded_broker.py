"""The embedded broker's own promises: what it shares with Pulsar, the conformance transcripts show."""

import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo.broker import PIECE_BYTES
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import BadRequest, GeneratedTopics, ListedTopics, topic_list
from tests.support.brokers.embedded.watchers import MOST_WATCHERS, Watchers
from tests.support.clients.async_client import AsyncClient


def question(namespace: str, pattern: str | None = None) -> pb.CommandGetTopicsOfNamespace:
    return pb.CommandGetTopicsOfNamespace(request_id=1, namespace=namespace, topics_pattern=pattern)


def decoded(pieces: bytes) -> pb.CommandGetTopicsOfNamespaceResponse:
    return pb.CommandGetTopicsOfNamespaceResponse.FromString(b"\x08\x01" + pieces)


@pytest.mark.parametrize("name_bytes", [40, 127, 128, 500])
def test_generated_names_have_the_length_asked_for_and_their_namespace(name_bytes: int) -> None:
    store = GeneratedTopics(namespaces=20, topics=1500, name_bytes=name_bytes)
    body = topic_list(store, question("demo/ns-07"))
    pieces = list(body.pieces)
    answer = decoded(b"".join(pieces))
    assert body.rest_bytes == sum(map(len, pieces))
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert len(set(answer.topics)) == 1500
    assert list(answer.topics) == list(store.names("demo/ns-07"))
    assert all(len(name) == name_bytes and name.startswith("persistent://demo/ns-07/t-") for name in answer.topics)


@pytest.mark.parametrize("size", [28, 5000])
def test_names_that_cannot_have_the_length_asked_for_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"got {size} name bytes, expected 29 to 4096"):
        GeneratedTopics(namespaces=1, topics=10_000, name_bytes=size)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^persistent://demo/ns/a.*", ["persistent://demo/ns/a1", "persistent://demo/ns/a2-partition-0"]),
        ("a1", []),
    ],
)
def test_a_pattern_loses_its_domain_and_matches_whole_names(pattern: str, expected: list[str]) -> None:
    store = ListedTopics(["persistent://demo/ns/a1", "persistent://demo/ns/b1"], {"persistent://demo/ns/a2": 1})
    body = topic_list(store, question("demo/ns", pattern))
    assert list(decoded(b"".join(body.pieces)).topics) == expected


@pytest.mark.parametrize("pattern", ["foo://demo/.*", "demo/("])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(BadRequest, match="invalid pattern"):
        topic_list(ListedTopics(), question("demo/ns", pattern))


async def test_a_client_that_does_not_read_costs_one_piece() -> None:
    async with EmbeddedBroker(GeneratedTopics(1, 10_000, 100)) as broker:
        client = await AsyncClient.open(broker.port, rcvbuf=1024)
        await client.connect()
        for _ in range(100):
            await client.ask_topics("demo/ns-0")
        await broker.record.seen(CommandType.GET_TOPICS_OF_NAMESPACE, 100)
        (session,) = broker.connections
        assert session.unsent_bytes <= PIECE_BYTES
        assert broker.record.outstanding_topic_questions > 0
        client.close()


def test_the_watchers_of_a_connection_are_bounded() -> None:
    watchers = Watchers(ListedTopics())

    def refused(watcher_id: int) -> bool:
        request = pb.CommandWatchTopicList(request_id=5, watcher_id=watcher_id, namespace="a/b", topics_pattern=".*")
        return pb.BaseCommand.FromString(b"".join(watchers.start(request))[8:]).type == pb.BaseCommand.ERROR

    assert not any(refused(watcher_id) for watcher_id in range(MOST_WATCHERS))
    assert refused(MOST_WATCHERS)
    # The same watcher id again is a refresh.
    assert not refused(0)
    assert len(watchers) == MOST_WATCHERS
