"""What `proxyLogLevel` shows of a real client and a real broker: their commands, and messages rather than batches."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.pulsar.messages import connect, receive
from tests.pulsar.proxy_process import Proxy
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

MESSAGES, BATCH = 500, 100


def page(proxy: Proxy, path: str) -> Any:
    with urllib.request.urlopen(f"{proxy.web_url}/proxy-stats/{path}", timeout=patient(20)) as answer:
        return json.load(answer)


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
        # A tenth of what passed within one window of ten seconds: more than there were batches at all.
        missing = {"msgRateIn", "msgRateOut"}

        def seen() -> bool:
            rates = page(proxy, "topics").get(topic, {})
            missing.difference_update(name for name, rate in rates.items() if rate >= MESSAGES / 10 / 10)
            return not missing

        proxy.process.wait_ready(seen, 60.0)
        # A client has one connection for all its producers and consumers.
        (shown,) = page(proxy, "connections")
        assert set(shown) == {"requestRate", "byteRate", "clientAddress", "brokerAddress"}
    finally:
        client.close()
    log = proxy.process.tail(10_000)
    for command in ("PRODUCER", "SUBSCRIBE", "SEND", "MESSAGE", "FLOW", "CLOSE_PRODUCER"):
        assert f'"command":"{command}"' in log
