"""Java pattern consumers through the proxy know of new and deleted topics: at once by a watcher, else by polling.

Since 3.1 the Java client looks up its pattern as if it were a topic, connects to that broker through the proxy
(CONNECT with proxy_to_broker_url) and watches there: WATCH_TOPIC_LIST never comes on the lookup connection. Up to 3.0.0
it wants to watch on the lookup connection; CONNECTED promises no watcher there, so it sends nothing, and polls.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.java_consumers import Client, JavaConsumers, run_java_consumers
from tests.pulsar.messages import send_to_all
from tests.pulsar.own_broker import in_one_line
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy

pytestmark = pytest.mark.pulsar

NEVER_SECONDS = 3600
OFTEN_SECONDS = 1
START_SECONDS = 60.0
# A limit for slow machines only: an update takes 0.1 s, polling would take an hour or has a period of 1 s.
SOON_SECONDS = 30.0


def see_topics_come_and_go(
    consumer: JavaConsumers,
    admin: Admin,
    namespace: str,
    service_url: str,
    is_watching: Callable[[], bool] = lambda: True,
) -> None:
    """Create and delete topics until the consumer has seen both; `a1` and `b1` are there when it starts.

    The client's watcher knows nothing of a topic that is made between its list and the watcher's start: a consumer that
    does not poll would never hear of it, with or without a proxy. `is_watching` tells that the watcher has started.
    """
    a1, a2, a3, b2 = (f"persistent://{namespace}/{name}" for name in ("a1", "a2", "a3", "b2"))
    consumer.wait_for_topics({a1}, START_SECONDS)
    consumer.process.wait_ready(is_watching, START_SECONDS)
    for topic in (b2, a2, a3):
        admin.create_topic(topic)
    consumer.wait_for_topics({a1, a2, a3}, SOON_SECONDS)
    admin.delete_topic(a1)
    consumer.wait_for_topics({a2, a3}, SOON_SECONDS)
    send_to_all(service_url, [a2, a3])
    consumer.process.wait_ready(lambda: sorted(consumer.received()) == [a2, a3], SOON_SECONDS)
    assert consumer.topics() == {a2, a3}
    assert admin.topics(namespace) == [a2, a3, f"persistent://{namespace}/b1", b2]


@pytest.fixture
def filled(admin: Admin, namespace: str) -> str:
    """Give a namespace with one topic that matches and one that does not."""
    for name in ("a1", "b1"):
        admin.create_topic(f"persistent://{namespace}/{name}")
    return namespace


def test_a_new_java_consumer_is_told_by_its_watcher_and_never_polls(
    admin: Admin, filled: str, new_proxy: Callable[[Mapping[str, str]], Proxy], tmp_path: Path
) -> None:
    proxy, pattern = new_proxy({}), f"persistent://{filled}/a.*"

    def is_watching() -> bool:
        return proxy_metrics(proxy)("watch_frames_total", kind="success") == 1

    with in_one_line(), run_java_consumers(tmp_path, Client.NEW, proxy.service_url, pattern, NEVER_SECONDS) as consumer:
        see_topics_come_and_go(consumer, admin, filled, proxy.service_url, is_watching)


def test_an_old_java_consumer_is_denied_its_watcher_once_and_finds_topics_by_polling(
    admin: Admin, filled: str, service_url: str, tmp_path: Path
) -> None:
    pattern = f"persistent://{filled}/a.*"
    with in_one_line(), run_java_consumers(tmp_path, Client.OLD, service_url, pattern, OFTEN_SECONDS) as consumer:
        see_topics_come_and_go(consumer, admin, filled, service_url)
        log = consumer.said
    assert log.count("Failed to create topic list watcher") == 1
    # One for lookups, one for the relay: neither was lost over the watcher.
    assert log.count("Connected to server") == 2
