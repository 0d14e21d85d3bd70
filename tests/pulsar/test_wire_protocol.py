"""What a proxy says of itself and of its broker: where lookups lead, and what each kind of connection promises."""

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
    """Give a namespace with a topic a1."""
    admin.create_topic(f"persistent://{namespace}/a1")
    return namespace


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
        assert len(client.get_topics(filled).topics) == 1
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
