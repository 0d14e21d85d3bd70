"""Seeks and shared subscriptions work through the relay."""

import time
from collections import defaultdict

import pulsar
import pytest

from tests.pulsar.messages import RECEIVE_MILLIS, receive, send_numbers

pytestmark = pytest.mark.pulsar

COUNT = 20


def test_a_consumer_seeks_back_to_a_message(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    sent = send_numbers(client.create_producer(topic, batching_enabled=False), COUNT)
    third = list(receive(consumer, COUNT))[2]
    consumer.seek(third.message_id())
    # A seek is to the position behind the message (the message itself is included only on request).
    assert [message.data() for message in receive(consumer, COUNT - 3)] == sent[3:]


def test_key_shared_gives_each_key_to_one_consumer_in_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "sub", pulsar.ConsumerType.KeyShared) for _ in range(3)]
    producer = client.create_producer(topic, batching_enabled=False)
    keys, rounds = [f"key-{number}" for number in range(30)], 10
    for number in range(rounds):
        for key in keys:
            producer.send_async(b"%d" % number, callback=None, partition_key=key)
    producer.flush()
    got: dict[tuple[str, int], list[int]] = defaultdict(list)
    deadline = time.monotonic() + RECEIVE_MILLIS / 1000
    while sum(map(len, got.values())) < len(keys) * rounds and time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            for message in consumer.batch_receive():
                got[message.partition_key(), index].append(int(message.data()))
                consumer.acknowledge(message)
    assert sorted(key for key, _ in got) == sorted(keys)
    assert all(numbers == list(range(rounds)) for numbers in got.values())
    assert {index for _, index in got} == {0, 1, 2}
