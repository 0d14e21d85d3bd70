"""Messages of all shapes pass the relay unchanged and in order."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from tests.pulsar.messages import content, receive, send_numbers

pytestmark = pytest.mark.pulsar

MIB = 1024 * 1024


def test_messages_arrive_in_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    sent = send_numbers(client.create_producer(topic, batching_enabled=False), 50)
    assert [message.data() for message in receive(consumer, 50)] == sent


def test_a_chunked_message_of_12_mib_arrives_unchanged(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    sent = content(12 * MIB)
    client.create_producer(topic, batching_enabled=False, chunking_enabled=True).send(sent)
    (message,) = receive(consumer, 1)
    assert message.data() == sent


def test_many_clients_at_once_each_get_their_own_messages(
    new_client: Callable[[], pulsar.Client], namespace: str
) -> None:
    clients = [new_client() for _ in range(40)]

    def run(number: int) -> bool:
        topic = f"persistent://{namespace}/topic-{number}"
        consumer = clients[number].subscribe(topic, "sub")
        sent = [content(1000, number * 100 + index) for index in range(20)]
        producer = clients[number].create_producer(topic)
        for data in sent:
            producer.send(data)
        return [message.data() for message in receive(consumer, 20)] == sent

    with ThreadPoolExecutor(len(clients)) as pool:
        assert list(pool.map(run, range(len(clients)))) == [True] * len(clients)
