"""Peers that the same transcripts pass on: Pulsar, what stands in for it, and the proxy before Pulsar.

A new one is one entry in PEERS: a function that takes the test's request, brings up what has exactly the topics below
in NAMESPACE, and yields its address.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import ListedTopics

NAMESPACE = "public/conformance"
BASE = f"persistent://{NAMESPACE}"
PLAIN = ("invoices-1", "orders-1", "orders-2")
WIDE, PARTITIONS = "wide", 3
ALL_TOPICS = sorted(
    [
        *(f"{BASE}/{name}" for name in PLAIN),
        *(f"{BASE}/{WIDE}-partition-{number}" for number in range(PARTITIONS)),
    ]
)


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a peer listens, the broker that serves all topics, and what leads to that broker in CONNECT."""

    host: str
    port: int
    service_url: str
    to_broker: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def real_broker(request: pytest.FixtureRequest) -> Iterator[Peer]:
    from tests.pulsar.admin import Admin
    from tests.pulsar.proxy_process import host_and_port

    broker = request.getfixturevalue("broker")
    admin = Admin(broker.admin_url)
    if NAMESPACE not in admin.call("GET", "/admin/v2/namespaces/public"):
        admin.create_namespace(NAMESPACE)
        for name in PLAIN:
            admin.create_topic(f"{BASE}/{name}")
        admin.create_topic(f"{BASE}/{WIDE}", partitions=PARTITIONS)
    yield Peer(*host_and_port(broker.service_url), broker.service_url)


@contextmanager
def proxy(request: pytest.FixtureRequest) -> Iterator[Peer]:
    from tests.pulsar.proxy_process import host_and_port, run_proxy

    directory = request.getfixturevalue("tmp_path_factory").mktemp("proxy")
    with real_broker(request) as behind, run_proxy(directory, request.getfixturevalue("broker")) as running:
        target = {"proxy_to_broker_url": f"{behind.host}:{behind.port}"}
        yield Peer(*host_and_port(running.service_url), behind.service_url, target)


@contextmanager
def embedded_broker(_: pytest.FixtureRequest) -> Iterator[Peer]:
    topics = ListedTopics((f"{BASE}/{name}" for name in PLAIN), {f"{BASE}/{WIDE}": PARTITIONS})
    with asyncio.Runner() as runner:
        broker = EmbeddedBroker(topics)
        runner.run(broker.start())
        # The client of the transcripts blocks, so the broker's loop turns in a thread of its own.
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield Peer(broker.host, broker.port, broker.service_url)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            runner.run(broker.stop())


PEERS: dict[str, tuple[Callable[[pytest.FixtureRequest], Any], list[pytest.MarkDecorator]]] = {
    "real broker": (real_broker, [pytest.mark.pulsar]),
    "embedded broker": (embedded_broker, []),
    "proxy": (proxy, [pytest.mark.pulsar]),
}
BROKERS = ("real broker", "embedded broker")
