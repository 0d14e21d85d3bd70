"""Owns what the client tests do over and over: make contents, send them, receive and acknowledge."""

import random
from collections.abc import Iterator
from typing import Final

import pulsar

RECEIVE_MILLIS: Final = 60_000


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
