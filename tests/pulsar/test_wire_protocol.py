"""What the real client cannot show: hashes, patterns, pipelining, split bytes, the fields of an answer."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import ServerRefusedError, WireClient

pytestmark = pytest.mark.pulsar


@pytest.fixture
def filled(admin: Admin, namespace: str) -> str:
    """Give a namespace with topics a1, a2, b1 and p in 3 partitions."""
    for name in ("a1", "a2", "b1"):
        admin.create_topic(f"persistent://{namespace}/{name}")
    admin.create_topic(f"persistent://{namespace}/p", partitions=3)
    return namespace


def names(response: pb.CommandGetTopicsOfNamespaceResponse) -> list[str]:
    return sorted(topic.rpartition("/")[2] for topic in response.topics)


@contextmanager
def connected(url: str, segment_bytes: int = 0, rcvbuf: int | None = None, target: str = "") -> Iterator[WireClient]:
    with WireClient(*host_and_port(url), segment_bytes=segment_bytes, rcvbuf=rcvbuf) as client:
        client.connect(**({"proxy_to_broker_url": target} if target else {}))
        yield client


def target_of(broker: Broker) -> str:
    return broker.service_url.removeprefix("pulsar://")


def test_a_pattern_is_evaluated_by_the_broker(wire: WireClient, filled: str) -> None:
    response = wire.get_topics(filled, pattern=f"persistent://{filled}/a.*")
    assert (names(response), response.filtered, response.changed) == (["a1", "a2"], True, True)


def test_a_pattern_over_the_brokers_limit_gets_the_whole_list_unfiltered(wire: WireClient, filled: str) -> None:
    response = wire.get_topics(filled, pattern=f"persistent://{filled}/{'a' * 50}.*")
    assert not response.filtered
    assert len(response.topics) == 6


def test_an_equal_hash_is_answered_with_unchanged_and_no_topics(wire: WireClient, filled: str) -> None:
    pattern = f"persistent://{filled}/a.*"
    first = wire.get_topics(filled, pattern=pattern)
    again = wire.get_topics(filled, pattern=pattern, topics_hash=first.topics_hash)
    assert (again.changed, list(again.topics), again.topics_hash) == (False, [], first.topics_hash)


def test_a_hash_that_is_no_longer_true_is_answered_with_the_new_list(
    admin: Admin, wire: WireClient, filled: str
) -> None:
    pattern = f"persistent://{filled}/a.*"
    first = wire.get_topics(filled, pattern=pattern)
    admin.create_topic(f"persistent://{filled}/a3")
    again = wire.get_topics(filled, pattern=pattern, topics_hash=first.topics_hash)
    assert (again.changed, names(again)) == (True, ["a1", "a2", "a3"])
    assert again.topics_hash != first.topics_hash


def test_properties_of_a_topic_list_request_are_no_hindrance(wire: WireClient, filled: str) -> None:
    assert len(wire.get_topics(filled, properties={"key": "value"}).topics) == 6


def test_a_pattern_that_does_not_compile_is_an_error_and_the_connection_lives(wire: WireClient, filled: str) -> None:
    with pytest.raises(ServerRefusedError):
        wire.get_topics(filled, pattern="[")
    assert len(wire.get_topics(filled).topics) == 6


def test_pipelined_requests_each_get_their_own_answer(wire: WireClient, filled: str) -> None:
    patterns = {"a.*": ["a1", "a2"], "b.*": ["b1"], "p.*": [f"p-partition-{number}" for number in range(3)]}
    asked = [
        (wire.ask_topics(filled, pattern=f"persistent://{filled}/{tail}"), expected)
        for _ in range(70)
        for tail, expected in patterns.items()
    ]
    for request_id, expected in asked:
        assert names(wire.answer_to(request_id).getTopicsOfNamespaceResponse) == expected


def test_requests_in_one_byte_segments_are_answered_the_same(service_url: str, filled: str) -> None:
    with connected(service_url, segment_bytes=1) as client:
        asked = [client.ask_topics(filled, pattern=f"persistent://{filled}/a.*") for _ in range(5)]
        for request_id in asked:
            assert names(client.answer_to(request_id).getTopicsOfNamespaceResponse) == ["a1", "a2"]
        assert client.partition_metadata(f"persistent://{filled}/p").partitions == 3
        assert client.ping().type == pb.BaseCommand.PONG


def test_a_late_reader_gets_every_list_whole(admin: Admin, service_url: str, namespace: str) -> None:
    admin.create_topic(f"persistent://{namespace}/{'long-' * 20}", partitions=1000)
    expected = admin.topics(namespace)
    with connected(service_url, rcvbuf=4096) as late, connected(service_url) as prompt:
        asked = [late.ask_topics(namespace) for _ in range(30)]
        # The other client is not held up by the one that does not read.
        assert sorted(prompt.get_topics(namespace).topics) == expected
        for request_id in asked:
            assert sorted(late.answer_to(request_id).getTopicsOfNamespaceResponse.topics) == expected


def test_partition_metadata_says_how_many_and_creates_only_if_asked(wire: WireClient, filled: str) -> None:
    assert wire.partition_metadata(f"persistent://{filled}/p").partitions == 3
    assert wire.partition_metadata(f"persistent://{filled}/a1").partitions == 0
    missing = wire.partition_metadata(f"persistent://{filled}/missing", auto_create=False)
    assert missing.response == pb.CommandPartitionedTopicMetadataResponse.Failed
    assert missing.error == ServerError.TopicNotFound


def test_a_lookup_sends_the_client_back_through_the_proxy(proxy_url: str, broker: Broker, filled: str) -> None:
    with connected(proxy_url) as client:
        response = client.lookup(f"persistent://{filled}/a1")
    assert response.response == pb.CommandLookupTopicResponse.Connect
    assert (response.proxy_through_service_url, response.authoritative) == (True, True)
    assert response.brokerServiceUrl == broker.service_url


def test_a_lookup_of_a_pattern_as_a_topic_is_served(wire: WireClient, filled: str) -> None:
    # Java's pattern consumer finds the broker for its topic watcher in this way.
    response = wire.lookup(f"persistent://{filled}/.*")
    assert response.response == pb.CommandLookupTopicResponse.Connect


def test_a_lookup_that_fails_carries_a_code_and_the_connection_lives(wire: WireClient, filled: str) -> None:
    failed = wire.lookup("persistent://no-such-tenant/ns/topic")
    assert failed.response == pb.CommandLookupTopicResponse.Failed
    assert failed.HasField("error")
    assert wire.lookup(f"persistent://{filled}/a1").response == pb.CommandLookupTopicResponse.Connect


def test_the_lookup_connection_promises_no_watcher_and_no_message_size(proxy_url: str) -> None:
    with WireClient(*host_and_port(proxy_url)) as client:
        answer = client.connect(protocol_version=19)
    assert answer.protocol_version == 19
    assert not answer.HasField("max_message_size")
    assert not answer.feature_flags.supports_topic_watchers
    assert answer.feature_flags.supports_get_partitioned_metadata_without_auto_creation


def test_a_command_that_is_not_served_gets_an_error_and_the_connection_lives(proxy_url: str, filled: str) -> None:
    with connected(proxy_url) as client:
        client.send_command(watch_request(77, filled))
        with pytest.raises(ServerRefusedError):
            client.answer_to(77)
        assert len(client.get_topics(filled).topics) == 6


def watch_request(request_id: int, namespace: str) -> pb.BaseCommand:
    watch = pb.CommandWatchTopicList(
        request_id=request_id, watcher_id=1, namespace=namespace, topics_pattern=f"{namespace}/a.*"
    )
    return pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST, watchTopicList=watch)


@pytest.mark.parametrize("scheme", ["", "pulsar://"], ids=["host:port", "with scheme"])
def test_a_direct_connection_carries_the_brokers_own_promises(proxy_url: str, broker: Broker, scheme: str) -> None:
    with WireClient(*host_and_port(broker.service_url)) as direct:
        brokers = direct.connect()
    with WireClient(*host_and_port(proxy_url)) as through:
        proxys = through.connect(proxy_to_broker_url=scheme + target_of(broker))
    assert proxys.max_message_size == brokers.max_message_size > 0
    assert proxys.protocol_version == brokers.protocol_version
    assert brokers.feature_flags.supports_topic_watchers
    assert proxys.feature_flags.supports_topic_watchers


def test_a_topic_watcher_sees_new_topics_through_a_direct_connection(
    proxy_url: str, admin: Admin, broker: Broker, filled: str
) -> None:
    with connected(proxy_url, target=target_of(broker)) as client:
        client.send_command(watch_request(1, filled))
        started = client.answer_to(1).watchTopicListSuccess
        assert sorted(topic.rpartition("/")[2] for topic in started.topic) == ["a1", "a2"]
        admin.create_topic(f"persistent://{filled}/a3")
        update = client.recv_command()
    assert update.type == pb.BaseCommand.WATCH_TOPIC_UPDATE
    assert list(update.watchTopicUpdate.new_topics) == [f"persistent://{filled}/a3"]


def test_a_second_connect_closes_the_connection(proxy_url: str) -> None:
    with connected(proxy_url) as client:
        client.send_command(
            pb.BaseCommand(
                type=pb.BaseCommand.CONNECT,
                connect=pb.CommandConnect(client_version="again", protocol_version=21),
            )
        )
        client.wait_closed()
