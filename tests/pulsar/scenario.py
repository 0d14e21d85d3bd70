"""Owns upstream's own scenario for topic-list memory, at any size: long names, a storm, real consumers.

200 connections ask 500 times for the list of a wide partitioned topic with names of 512 characters, while three pattern
consumers of the real client subscribe to 50 topics of the same namespace and read a message from each.
"""

import asyncio
import re
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pulsar

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar import memory, storm
from tests.pulsar.admin import Admin
from tests.pulsar.messages import receive, send_to_all
from tests.pulsar.pages import wait_until_whole
from tests.pulsar.proxy_process import Proxy, connected, host_and_port
from tests.support.patience import patient

CONNECTIONS: Final = 200
REQUESTS: Final = 500
CONSUMERS: Final = 3
CONSUMED_TOPICS: Final = 50
NAME_CHARACTERS: Final = 512  # of a partition, its domain not counted
# Of the consumers; by default 30 s, which a small machine may need for the lists that are asked for before theirs.
_PATIENCE_SECONDS: Final = round(patient(110))


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace with one wide topic, and those that the consumers read, a message in each."""

    name: str
    consumed: set[str]


@dataclass(frozen=True, slots=True)
class Load:
    """The namespace, and what is asked: `shared` requests are equal, others ask for the same but share nothing."""

    namespace: Namespace
    shared: bool
    window: int

    def requests(self) -> Sequence[pb.CommandGetTopicsOfNamespace]:
        """Make the requests of the storm."""
        marker = "" if self.shared else "{}"
        return [storm.request(self.namespace.name, marker=marker.format(number)) for number in range(REQUESTS)]


@dataclass(frozen=True, slots=True)
class Report:
    """What happened: the storm's outcome, what each consumer read or why it failed, and the proxy's memory in bytes."""

    outcome: storm.Outcome
    read: list[set[str] | str]
    idle: int
    peak: int


def fill(admin: Admin, service_url: str, name: str, partitions: int) -> Namespace:
    """Create the namespace `name` and all that is in it."""
    admin.create_namespace(name)
    consumed = [f"persistent://{name}/c-{number}" for number in range(CONSUMED_TOPICS)]
    send_to_all(service_url, consumed)
    room = NAME_CHARACTERS - len(f"{name}/-partition-{partitions - 1}")
    admin.create_topic(f"persistent://{name}/{'w' * room}", partitions)
    return Namespace(name, set(consumed))


async def run(proxy: Proxy, load: Load) -> Report:
    """Run storm and consumers at once through a proxy that nobody has used yet."""
    pid = proxy.process.pid
    await asyncio.to_thread(wait_until_whole, proxy)
    idle = memory.resident(pid)
    with ThreadPoolExecutor(CONSUMERS) as threads:
        reading: list[Future[set[str] | str]] = []

        def begin_reading() -> None:
            read = partial(_read_all, proxy.service_url, load.namespace.name)
            reading.extend(threads.submit(read, f"reader-{uuid.uuid4()}") for _ in range(CONSUMERS))

        address = host_and_port(proxy.service_url)
        outcome = await storm.storm(address, load.requests(), CONNECTIONS, load.window, begin_reading)
        read = [topics.result() for topics in reading]
    return Report(outcome, read, idle, memory.peak(pid))


def whole_list(service_url: str, namespace: str) -> list[str]:
    """Return the list that everybody must get, from the broker itself."""
    with connected(service_url) as client:
        return list(client.get_topics(namespace).topics)


def _read_all(service_url: str, namespace: str, subscription: str) -> set[str] | str:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(service_url, operation_timeout_seconds=_PATIENCE_SECONDS, logger=logger)
    try:
        consumer = client.subscribe(
            re.compile(f"persistent://{namespace}/c-.*"),
            subscription,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        return {message.data().decode() for message in receive(consumer, CONSUMED_TOPICS)}
    except pulsar.PulsarException as error:
        return str(error)
    finally:
        client.close()
