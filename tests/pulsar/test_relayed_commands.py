"""What `proxyLogLevel` shows of a real client and a real broker: their commands, and messages rather than batches."""

import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.pulsar.messages import connect, receive
from tests.pulsar.proxy_process import Proxy
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

MESSAGES, BATCH = 500, 100
PATIENCE_SECONDS = patient(60.0)


def page(proxy: Proxy, path: str) -> Any:
    with urllib.request.urlopen(f"{proxy.web_url}/proxy-stats/{path}", timeout=patient(20)) as answer:
        return json.load(answer)


def rates(proxy: Proxy, topic: str) -> dict[str, float]:
    """Give the largest rates of a topic, over windows until both directions were seen."""
    most: dict[str, float] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (most.get("msgRateIn") and most.get("msgRateOut")):
        assert time.monotonic() < deadline, most
        for name, rate in page(proxy, "topics").get(topic, {}).items():
            most[name] = max(rate, most.get(name, 0.0))
        time.sleep(0.2)
    return most


def test_a_batch_counts_as_its_messages_in_both_directions(
    new_proxy: Callable[[Mapping[str, str]], Proxy], topic: str
) -> None:
    proxy = new_proxy({"proxyLogLevel": "2"})
    client = connect(proxy.service_url)
    try:
        consumer = client.subscribe(topic, "sub")
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_messages=BATCH, batching_max_publish_delay_ms=1000
        )
        for number in range(MESSAGES):
            producer.send_async(b"%d" % number, callback=None)
        producer.flush()
        assert len(list(receive(consumer, MESSAGES))) == MESSAGES
        seen = rates(proxy, topic)
        # A tenth of what passed within one window of ten seconds: more than there were batches at all.
        least = MESSAGES / 10 / 10
        assert seen["msgRateIn"] >= least
        assert seen["msgRateOut"] >= least
        # A client has one connection for all its producers and consumers.
        (shown,) = page(proxy, "connections")
        assert set(shown) == {"requestRate", "byteRate", "clientAddress", "brokerAddress"}
    finally:
        client.close()
    log = proxy.process.tail(10_000)
    for command in ("PRODUCER", "SUBSCRIBE", "SEND", "MESSAGE", "FLOW", "CLOSE_PRODUCER"):
        assert f'"command":"{command}"' in log
