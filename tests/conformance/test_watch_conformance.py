"""A watcher's transcript on a stand-in and through a relay is that on Pulsar: names, hash, errors, the end."""

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topics_hash import topics_hash
from tests.conformance.peers import ALL_TOPICS, BASE, NAMESPACE, PARTITIONS, Peer
from tests.support.clients.wire import ServerRefusedError, WireClient, WireClosedError


@pytest.fixture
def wire(raw: WireClient, peer: Peer) -> WireClient:
    raw.connect(**peer.to_broker)
    return raw


def watch(
    wire: WireClient, pattern: str, namespace: str = NAMESPACE, known_hash: str | None = None
) -> pb.CommandWatchTopicListSuccess:
    fields = {"namespace": namespace, "topics_pattern": pattern, "topics_hash": known_hash}
    answer = wire.answered("WATCH_TOPIC_LIST", watcher_id=7, **fields)
    assert answer.type == pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS
    assert answer.watchTopicListSuccess.watcher_id == 7
    return answer.watchTopicListSuccess


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (f"{BASE}/orders-.*", [f"{BASE}/orders-1", f"{BASE}/orders-2"]),
        (f"{NAMESPACE}/wide", ALL_TOPICS[-PARTITIONS:]),
        (f"{BASE}/nothing", []),
    ],
    ids=["with domain", "partitions by their topic's name", "none"],
)
def test_a_watcher_begins_with_the_names_of_its_pattern_and_their_hash(
    wire: WireClient, pattern: str, expected: list[str]
) -> None:
    started = watch(wire, pattern)
    assert sorted(started.topic) == expected
    assert started.topics_hash == topics_hash(expected)


def test_a_watcher_that_knows_the_names_gets_none(wire: WireClient) -> None:
    known = topics_hash([f"{BASE}/orders-1", f"{BASE}/orders-2"])
    started = watch(wire, f"{BASE}/orders-.*", known_hash=known)
    assert (list(started.topic), started.topics_hash) == ([], known)


@pytest.mark.parametrize(
    ("pattern", "code"),
    [("[", ServerError.InvalidTopicName), (f"{BASE}/{'x' * 50}", ServerError.NotAllowedError)],
    ids=["does not compile", "longer than 50 characters"],
)
def test_a_pattern_that_is_not_evaluated_is_an_error_and_the_connection_lives(
    wire: WireClient, pattern: str, code: ServerError
) -> None:
    with pytest.raises(ServerRefusedError) as refused:
        watch(wire, pattern)
    assert refused.value.code == code
    assert wire.ping().type == pb.BaseCommand.PONG


def test_a_watcher_that_is_closed_may_start_again(wire: WireClient) -> None:
    watch(wire, f"{BASE}/orders-.*")
    assert wire.answered("WATCH_TOPIC_LIST_CLOSE", watcher_id=7).type == pb.BaseCommand.SUCCESS
    assert len(watch(wire, f"{BASE}/orders-.*").topic) == 2


def test_a_watcher_of_no_namespace_closes_the_connection(wire: WireClient) -> None:
    with pytest.raises(WireClosedError):
        watch(wire, ".*", namespace="public")
