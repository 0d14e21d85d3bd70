"""What clients do most, once more with a broker of an older release; and a client of a newer one than either."""

from typing import Final

import pytest

from protocol.commands import request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.standalone import Broker

# The same tests, with the fixtures of this package.
from tests.pulsar.test_pattern_consumers import (  # noqa: F401
    filled,
    test_a_new_java_consumer_is_told_by_its_watcher_and_never_polls,
)
from tests.pulsar.test_produce_consume import (  # noqa: F401
    test_a_chunked_message_of_12_mib_arrives_unchanged,
    test_messages_arrive_in_order,
)
from tests.pulsar.test_topics import (  # noqa: F401
    test_a_pattern_subscription_gets_all_matching_topics_and_no_other,
    test_topic_lists_equal_the_admin_interfaces,
)
from tests.pulsar.test_wire_protocol import (  # noqa: F401
    test_a_direct_connection_carries_the_brokers_own_promises,
    test_a_lookup_sends_the_client_back_through_the_proxy,
)
from tests.support.clients.commands import command
from tests.support.clients.wire import WireClient, WireClosedError

pytestmark = pytest.mark.pulsar

NEWER: Final = pb.FeatureFlags(
    supports_auth_refresh=True, supports_scalable_topics=True, supports_tc_metadata_discovery=True
)


def newer_commands(topic: str) -> list[pb.BaseCommand]:
    """Give what a client of 5.0 sends and no broker of today understands."""
    return [
        command("SCALABLE_TOPIC_LOOKUP", session_id=7, topic=topic),
        command("SCALABLE_TOPIC_CLOSE", session_id=7),
        command(
            "SCALABLE_TOPIC_SUBSCRIBE", request_id=7, subscription="sub", consumer_name="c", consumer_id=7,
            consumer_type=0, topic=topic,
        ),
        command("SCALABLE_TOPIC_UNSUBSCRIBE", request_id=7, consumer_id=7),
        command("WATCH_SCALABLE_TOPICS", watch_id=7, namespace="public/default"),
        command("WATCH_SCALABLE_TOPICS_CLOSE", watch_id=7),
        command("WATCH_TC_ASSIGNMENTS", watch_id=7),
        command("WATCH_TC_ASSIGNMENTS_CLOSE", watch_id=7),
    ]  # fmt: skip


def test_a_client_of_5_0_is_told_what_is_not_served_and_goes_on(service_url: str, namespace: str, topic: str) -> None:
    with WireClient(*host_and_port(service_url)) as client:
        answer = client.connect(protocol_version=22, feature_flags=NEWER)
        assert not answer.feature_flags.supports_scalable_topics
        for newer in newer_commands(topic):
            client.send_command(newer)
            refusal = client.recv_command()
            assert refusal.error.error == ServerError.NotAllowedError
            assert refusal.error.request_id == request_id_of(newer)
            assert "is not served on a proxy's lookup connection" in refusal.error.message
        assert client.get_topics(namespace).topics == []


def test_a_relayed_client_of_5_0_gets_the_brokers_own_reaction(service_url: str, broker: Broker, topic: str) -> None:
    def reaction(url: str, **fields: object) -> list[str]:
        seen = []
        for newer in newer_commands(topic):
            with WireClient(*host_and_port(url)) as client:
                seen.append(str(client.connect(feature_flags=NEWER, **fields).feature_flags.supports_scalable_topics))
                client.send_command(newer)
                try:
                    seen.append(str(client.ping()))
                except WireClosedError:
                    seen.append("closed")
        return seen

    target = broker.service_url.removeprefix("pulsar://")
    assert reaction(service_url, proxy_to_broker_url=target) == reaction(broker.service_url)
