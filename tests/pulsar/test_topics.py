"""Partitioned topics, pattern subscriptions, and topic lists beside those of the admin interface."""

import re

import pulsar
import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import receive
from tests.support.clients.wire import WireClient

pytestmark = pytest.mark.pulsar


def test_a_partitioned_topic_spreads_and_delivers_all(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=5)
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{number}" for number in range(5)]
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, batching_enabled=False)
    sent = [b"%d" % number for number in range(50)]
    for data in sent:
        producer.send(data)
    received = list(receive(consumer, 50))
    assert sorted(message.data() for message in received) == sorted(sent)
    assert {message.topic_name() for message in received} == set(client.get_topic_partitions(topic))


def test_a_pattern_subscription_gets_all_matching_topics_and_no_other(
    client: pulsar.Client, admin: Admin, namespace: str
) -> None:
    base = f"persistent://{namespace}"
    matching = [f"{base}/orders-{number}" for number in range(5)]
    for topic in [*matching, f"{base}/invoices-1", f"{base}/x-orders-1"]:
        admin.create_topic(topic)
    admin.create_topic(f"{base}/orders-wide", partitions=3)
    consumer = client.subscribe(re.compile(f"{base}/orders-.*"), "sub")
    for topic in [f"{base}/invoices-1", f"{base}/x-orders-1", f"{base}/orders-wide", *matching]:
        client.create_producer(topic).send(topic.encode())
    received = {message.data().decode() for message in receive(consumer, 6)}
    assert received == {*matching, f"{base}/orders-wide"}
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=500)


def test_topic_lists_equal_the_admin_interfaces(
    client: pulsar.Client, admin: Admin, wire: WireClient, namespace: str
) -> None:
    for number in range(20):
        admin.create_topic(f"persistent://{namespace}/topic-{number}")
    admin.create_topic(f"persistent://{namespace}/é-日本-😀")
    admin.create_topic(f"persistent://{namespace}/wide", partitions=10)
    # Held: a non-persistent topic is there while somebody uses it.
    producer = client.create_producer(f"non-persistent://{namespace}/fleeting")
    for mode, count in {"PERSISTENT": 31, "NON_PERSISTENT": 1, "ALL": 32}.items():
        listed = sorted(wire.get_topics(namespace, mode).topics)
        assert listed == admin.topics(namespace, mode)
        assert len(listed) == count
    producer.close()
