"""What neither the real client shows nor a broker without a proxy: pipelines, late readers, whose promises are kept."""

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import ServerRefusedError, WireClient

pytestmark = pytest.mark.pulsar

Connect = pb.CommandLookupTopicResponse.Connect


@pytest.fixture
def filled(admin: Admin, namespace: str) -> str:
    """Give a namespace with topics a1, a2, b1 and p in 3 partitions."""
    for name in ("a1", "a2", "b1"):
        admin.create_topic(f"persistent://{namespace}/{name}")
    admin.create_topic(f"persistent://{namespace}/p", partitions=3)
    return namespace


def names(response: pb.CommandGetTopicsOfNamespaceResponse) -> list[str]:
    return sorted(topic.rpartition("/")[2] for topic in response.topics)


def test_a_hash_that_is_no_longer_true_is_answered_with_the_new_list(
    admin: Admin, wire: WireClient, filled: str
) -> None:
    pattern = f"persistent://{filled}/a.*"
    first = wire.get_topics(filled, pattern=pattern)
    admin.create_topic(f"persistent://{filled}/a3")
    again = wire.get_topics(filled, pattern=pattern, topics_hash=first.topics_hash)
    assert (again.changed, names(again)) == (True, ["a1", "a2", "a3"])
    assert again.topics_hash != first.topics_hash


def test_pipelined_requests_each_get_their_own_answer(wire: WireClient, filled: str) -> None:
    patterns = {"a.*": ["a1", "a2"], "b.*": ["b1"], "p.*": [f"p-partition-{number}" for number in range(3)]}
    asked = [
        (wire.ask_topics(filled, pattern=f"persistent://{filled}/{tail}"), expected)
        for _ in range(70)
        for tail, expected in patterns.items()
    ]
    for request_id, expected in asked:
        assert names(wire.answer_to(request_id).getTopicsOfNamespaceResponse) == expected


def test_a_late_reader_gets_every_list_whole(admin: Admin, service_url: str, namespace: str, wire: WireClient) -> None:
    admin.create_topic(f"persistent://{namespace}/{'long-' * 20}", partitions=1000)
    expected = admin.topics(namespace)
    with WireClient(*host_and_port(service_url), rcvbuf=4096) as late:
        late.connect()
        asked = [late.ask_topics(namespace) for _ in range(30)]
        # The other client is not held up by the one that does not read.
        assert sorted(wire.get_topics(namespace).topics) == expected
        for request_id in asked:
            assert sorted(late.answer_to(request_id).getTopicsOfNamespaceResponse.topics) == expected


def test_a_lookup_sends_the_client_back_through_the_proxy(wire: WireClient, broker: Broker, filled: str) -> None:
    # Java's pattern consumer finds the broker for its topic watcher by its pattern.
    for name in ("a1", ".*"):
        response = wire.lookup(f"persistent://{filled}/{name}")
        assert (response.response, response.brokerServiceUrl) == (Connect, broker.service_url)
        assert (response.proxy_through_service_url, response.authoritative) == (True, True)


def test_the_lookup_connection_promises_and_serves_no_watcher(service_url: str, filled: str) -> None:
    with WireClient(*host_and_port(service_url)) as client:
        answer = client.connect(protocol_version=19)
        with pytest.raises(ServerRefusedError):
            client.answered("WATCH_TOPIC_LIST", watcher_id=1, namespace=filled, topics_pattern=f"{filled}/a.*")
        assert len(client.get_topics(filled).topics) == 6
    assert answer.protocol_version == 19
    assert not answer.HasField("max_message_size")
    assert not answer.feature_flags.supports_topic_watchers
    assert answer.feature_flags.supports_get_partitioned_metadata_without_auto_creation


@pytest.mark.parametrize("scheme", ["", "pulsar://"], ids=["host:port", "with scheme"])
def test_a_direct_connection_carries_the_brokers_own_promises(service_url: str, broker: Broker, scheme: str) -> None:
    target = scheme + broker.service_url.removeprefix("pulsar://")
    with WireClient(*host_and_port(broker.service_url)) as direct, WireClient(*host_and_port(service_url)) as through:
        brokers, proxys = direct.connect(), through.connect(proxy_to_broker_url=target)
    assert proxys.max_message_size == brokers.max_message_size > 0
    assert proxys.protocol_version == brokers.protocol_version
    assert brokers.feature_flags.supports_topic_watchers
    assert proxys.feature_flags.supports_topic_watchers
