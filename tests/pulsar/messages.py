"""Owns what the client tests do over and over: make contents, send them, receive and acknowledge."""

import random
from collections.abc import Iterable, Iterator
from typing import Final

import pulsar

from tests.support.patience import patient, patient_millis

RECEIVE_MILLIS: Final = patient_millis(60_000)
_OPERATION_SECONDS: Final = 60.0


def connect(service_url: str) -> pulsar.Client:
    """Return a client that logs errors only, and that a busy machine does not make give up."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(service_url, operation_timeout_seconds=round(patient(_OPERATION_SECONDS)), logger=logger)


def content(size: int, seed: int = 0) -> bytes:
    """Make `size` bytes that no compression makes small and no lost or doubled piece leaves equal."""
    return random.Random(seed).randbytes(size)


def receive(consumer: pulsar.Consumer, count: int) -> Iterator[pulsar.Message]:
    """Yield and acknowledge `count` messages; raises pulsar.Timeout if one does not come."""
    for _ in range(count):
        message = consumer.receive(timeout_millis=RECEIVE_MILLIS)
        consumer.acknowledge(message)
        yield message


def send_numbers(producer: pulsar.Producer, count: int) -> list[bytes]:
    """Send `count` numbered messages one by one and return their contents."""
    sent = [b"message %d" % number for number in range(count)]
    for data in sent:
        producer.send(data)
    return sent


def send_to_all(service_url: str, topics: Iterable[str]) -> None:
    """Send one message, its content the topic's name, to each of `topics`, over a client of its own."""
    client = connect(service_url)
    try:
        for topic in topics:
            producer = client.create_producer(topic)
            producer.send(topic.encode())
            producer.close()
    finally:
        client.close()
