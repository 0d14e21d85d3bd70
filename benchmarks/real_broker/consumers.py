"""Owns the run of Java pattern consumers: how soon they know of topics, and how soon they are back. Judges nothing."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.ladder.verdict import Json
from tests.pulsar import scenario
from tests.pulsar.admin import Admin
from tests.pulsar.java_consumers import Client, JavaConsumers, run_java_consumers
from tests.pulsar.messages import send_to_all
from tests.pulsar.proxy_process import run_proxy
from tests.pulsar.standalone import Broker
from tests.support.sockets.ports import free_ports

# Longer than the run: what the consumers learn they learn from their watchers.
_POLL_SECONDS: Final = 3600
_PATIENCE_SECONDS: Final = 300.0


def run_consumers(
    directory: Path, broker: Broker, namespace: scenario.Namespace, consumers: int, new_topics: int
) -> Json:
    """Run consumers, each a client of its own, that see topics come and go, then end the proxy and start another.

    Seconds: from the call that creates or deletes a topic until each consumer acts on it, and from the first answer of
    the new proxy until each consumer has a new message from every topic.
    """
    keys = {"servicePort": str(free_ports(1)[0])}
    url, admin = f"pulsar://127.0.0.1:{keys['servicePort']}", Admin(broker.admin_url)
    pattern = f"persistent://{namespace.name}/c-.*"
    with run_java_consumers(directory, Client.NEW, url, pattern, _POLL_SECONDS, consumers) as java:
        with run_proxy(directory, broker, keys):
            _wait_for_deliveries(java, namespace, consumers, 1)
            seen = _see_topics(java, admin, namespace, consumers, new_topics)
        send_to_all(broker.service_url, namespace.consumed)
        with run_proxy(directory, broker, keys):
            began = time.time()
            _wait_for_deliveries(java, namespace, consumers, 2)
            back = time.time() - began
    return {"title": f"{consumers} Java pattern consumers", "consumers": consumers, **seen, "seconds": round(back, 3)}


def _see_topics(
    java: JavaConsumers, admin: Admin, namespace: scenario.Namespace, consumers: int, new_topics: int
) -> Json:
    names = [f"persistent://{namespace.name}/c-{uuid.uuid4().hex[:8]}" for _ in range(new_topics)]
    began: dict[tuple[str, str], float] = {}
    for topic in names:
        for event, call in (("added", admin.create_topic), ("removed", admin.delete_topic)):
            began[event, topic] = time.time() * 1000
            call(topic)
            java.process.wait_ready(lambda: java.count(event, topic) == consumers, _PATIENCE_SECONDS)  # noqa: B023
    seconds: dict[str, list[float]] = {"added": [], "removed": []}
    for seen in java.events():
        if (seen.event, seen.topic) in began:
            seconds[seen.event].append((seen.millis - began[seen.event, seen.topic]) / 1000)
    return {
        f"{event}_seconds": {"median": round(median(found), 3), "most": round(max(found), 3), "samples": len(found)}
        for event, found in seconds.items()
    }


def _wait_for_deliveries(java: JavaConsumers, namespace: scenario.Namespace, consumers: int, messages: int) -> None:
    wanted = [(number, topic) for number in range(consumers) for topic in namespace.consumed]

    def all_came() -> bool:
        came = java.deliveries()
        return all(came[each] >= messages for each in wanted)

    java.process.wait_ready(all_came, _PATIENCE_SECONDS)
