"""A stand-in for Pulsar answers as Pulsar does, and so does the proxy before it: the same transcripts pass on all."""

from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topics_hash import topics_hash
from tests.conformance.peers import ALL_TOPICS, BASE, NAMESPACE, PARTITIONS, WIDE, Peer
from tests.support.clients.wire import ServerRefusedError, WireClient, WireClosedError

# The first of them starts the broker, and is among the first of a run.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def wire(raw: WireClient) -> WireClient:
    raw.connect()
    return raw


def test_connected_has_a_version_a_message_size_and_watchers(raw_at_broker: WireClient) -> None:
    answer = raw_at_broker.connect(protocol_version=19)
    assert answer.server_version
    assert answer.protocol_version == 19
    assert answer.max_message_size == 5 * 1024 * 1024
    assert answer.feature_flags.supports_topic_watchers


def test_a_ping_is_answered_with_a_pong(wire: WireClient) -> None:
    assert wire.ping().type == pb.BaseCommand.PONG


def test_a_command_before_connect_closes_the_connection(raw: WireClient) -> None:
    raw.ask_topics(NAMESPACE)
    raw.wait_closed()


def test_a_lookup_names_the_broker_itself(wire: WireClient, peer: Peer) -> None:
    response = wire.lookup(f"{BASE}/orders-1")
    assert response.response == pb.CommandLookupTopicResponse.Connect
    assert response.brokerServiceUrl == peer.service_url


def test_a_lookup_in_a_missing_namespace_fails(wire: WireClient) -> None:
    response = wire.lookup("persistent://public/missing/topic")
    assert response.response == pb.CommandLookupTopicResponse.Failed
    assert response.error == ServerError.TopicNotFound


@pytest.mark.parametrize(("name", "partitions"), [("orders-1", 0), (WIDE, PARTITIONS)])
def test_partition_metadata_says_how_many(wire: WireClient, name: str, partitions: int) -> None:
    response = wire.partition_metadata(f"{BASE}/{name}", auto_create=False)
    assert response.response == pb.CommandPartitionedTopicMetadataResponse.Success
    assert response.partitions == partitions


def test_partition_metadata_of_a_missing_topic_fails(wire: WireClient) -> None:
    response = wire.partition_metadata(f"{BASE}/missing", auto_create=False)
    assert response.response == pb.CommandPartitionedTopicMetadataResponse.Failed
    assert response.error == ServerError.TopicNotFound


@pytest.mark.parametrize("mode", ["PERSISTENT", "ALL"])
def test_a_topic_list_has_every_partition_and_the_hash_of_all_names(wire: WireClient, mode: str) -> None:
    response = wire.get_topics(NAMESPACE, mode)
    assert sorted(response.topics) == ALL_TOPICS
    assert (response.filtered, response.changed) == (False, True)
    assert response.topics_hash == topics_hash(ALL_TOPICS)


def test_a_list_of_the_other_domain_is_empty(wire: WireClient) -> None:
    response = wire.get_topics(NAMESPACE, "NON_PERSISTENT")
    assert (list(response.topics), response.topics_hash) == ([], "00000000")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (f"{BASE}/orders-.*", [f"{BASE}/orders-1", f"{BASE}/orders-2"]),
        (f"{NAMESPACE}/wide", ALL_TOPICS[-PARTITIONS:]),
        (f"{BASE}/orders", []),
        (".*", ALL_TOPICS),
    ],
    ids=["with domain", "partitions by their topic's name", "matched whole, not in part", "all"],
)
def test_a_pattern_filters_and_the_hash_is_of_what_is_left(wire: WireClient, pattern: str, expected: list[str]) -> None:
    response = wire.get_topics(NAMESPACE, pattern=pattern)
    assert sorted(response.topics) == expected
    assert response.filtered
    assert response.topics_hash == topics_hash(expected)


def test_a_pattern_longer_than_50_characters_is_left_to_the_client(wire: WireClient) -> None:
    response = wire.get_topics(NAMESPACE, pattern=f"{BASE}/{'x' * 50}")
    assert sorted(response.topics) == ALL_TOPICS
    assert not response.filtered


def test_an_equal_hash_is_answered_with_unchanged_and_no_topics(wire: WireClient) -> None:
    response = wire.get_topics(NAMESPACE, topics_hash=topics_hash(ALL_TOPICS))
    assert (list(response.topics), response.changed) == ([], False)
    assert response.topics_hash == topics_hash(ALL_TOPICS)


def test_another_hash_is_answered_with_the_list(wire: WireClient) -> None:
    response = wire.get_topics(NAMESPACE, topics_hash="00000000")
    assert (sorted(response.topics), response.changed) == (ALL_TOPICS, True)


def test_the_list_of_a_missing_namespace_is_empty(wire: WireClient) -> None:
    response = wire.get_topics("public/missing")
    assert (list(response.topics), response.changed) == ([], True)


def test_a_pattern_that_does_not_compile_is_an_error_and_the_connection_lives(wire: WireClient) -> None:
    with pytest.raises(ServerRefusedError) as refused:
        wire.get_topics(NAMESPACE, pattern="[")
    assert refused.value.code == ServerError.MetadataError
    assert wire.ping().type == pb.BaseCommand.PONG


def test_get_schema_of_a_topic_without_one_is_not_found(wire: WireClient) -> None:
    response = wire.get_schema(f"{BASE}/orders-1")
    assert response.error_code == ServerError.TopicNotFound
    assert not response.HasField("schema")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *(
            ("GET_TOPICS_OF_NAMESPACE", {"namespace": name})
            for name in ("", "public", "public/", "public/a/b", "a/a b")
        ),
        ("GET_SCHEMA", {"topic": f"{BASE}/orders-1", "schema_version": b"short"}),
        (
            "GET_OR_CREATE_SCHEMA",
            {"topic": "no/topic", "schema": pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")},
        ),
    ],
)
def test_what_is_no_name_and_no_version_closes_the_connection(
    raw_at_broker: WireClient, kind: str, fields: dict[str, Any]
) -> None:
    # This is why a proxy that shares connections must not let it through.
    raw_at_broker.connect()
    with pytest.raises(WireClosedError):
        raw_at_broker.answered(kind, **fields)
