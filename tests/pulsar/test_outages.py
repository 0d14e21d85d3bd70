"""Brokers and proxies that are killed, stand still, restart or hand over, under load in Python and Java."""

import time
from pathlib import Path
from typing import Final

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.outages import clients_at
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy, connected, run_proxy, start_proxy, stop_proxy
from tests.pulsar.standalone import Broker, Standalone
from tests.pulsar.ways import fleet
from tests.support.clients.wire import ServerRefusedError

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(400)]

# Above the time-out of a probe of the proxy, and of no client.
FROZEN_SECONDS: Final = 4.0
ANSWER_SECONDS: Final = 60.0
# Errors after which Pulsar's clients ask again.
ASKED_AGAIN: Final = {"ServiceNotReady", "TooManyRequests", "MetadataError"}
PROBES: Final = {"brokerProxyConnectTimeoutMs": "2000"}


def faultless(proxy: Proxy) -> bool:
    """Return whether no code of the proxy has failed."""
    return sum(proxy_metrics(proxy).family("pulsar_proxy_internal_errors_total").values()) == 0


def is_listed(proxy: Proxy, namespace: str) -> bool:
    """Return whether the one topic of a namespace is found and listed; no answer may be one that ends all asking."""
    topic = f"persistent://{namespace}/topic"
    with connected(proxy.service_url) as wire:
        found = wire.lookup(topic)
        if found.response == pb.CommandLookupTopicResponse.Failed:
            assert ServerError(found.error).name in ASKED_AGAIN, found
            return False
        try:
            return list(wire.get_topics(namespace).topics) == [topic]
        except ServerRefusedError as refused:
            if refused.code.name not in ASKED_AGAIN:
                raise
            return False


def test_a_broker_that_is_killed_or_stands_still_loses_nothing_and_all_clients_go_on(
    own_broker: Standalone, tmp_path: Path
) -> None:
    broker = own_broker.broker
    with run_proxy(tmp_path, broker, PROBES) as proxy:
        with clients_at(proxy.service_url, tmp_path, broker, "broker-outage") as clients:
            own_broker.kill()
            own_broker.start()
            clients.go_on("the broker was killed")
            proxy.process.wait_ready(lambda: is_listed(proxy, "public/broker-outage-once"), ANSWER_SECONDS)
            with own_broker.frozen():
                time.sleep(FROZEN_SECONDS)
            clients.go_on("the broker stood still")
            proxy.process.wait_ready(lambda: is_listed(proxy, "public/broker-outage-once"), ANSWER_SECONDS)
            assert clients.broken() == []
        assert faultless(proxy)


def test_a_proxy_that_is_killed_loses_nothing_and_all_clients_go_on(broker: Broker, tmp_path: Path) -> None:
    proxy = start_proxy(tmp_path, broker)
    try:
        with clients_at(proxy.service_url, tmp_path, broker, "proxy-outage") as clients:
            proxy.process.kill()
            proxy = start_proxy(tmp_path, broker, proxy.keys)
            clients.go_on("the proxy was killed")
            assert clients.broken() == []
        assert faultless(proxy)
    finally:
        stop_proxy(proxy)


def test_a_proxy_that_takes_over_loses_nothing_and_all_clients_go_on(broker: Broker, tmp_path: Path) -> None:
    keys = {"controlSocketPath": str(tmp_path / "control.sock")}
    before = proxy = start_proxy(tmp_path, broker, keys)
    try:
        with clients_at(proxy.service_url, tmp_path, broker, "take-over") as clients:
            after = tmp_path / "after"
            after.mkdir()
            proxy = start_proxy(after, broker, before.keys, options=("--take-over",))
            assert before.process.wait() == 0
            clients.go_on("another proxy took over")
            assert clients.broken() == []
        assert faultless(proxy)
    finally:
        stop_proxy(proxy)


def test_proxies_that_restart_one_after_the_other_lose_nothing(broker: Broker, tmp_path: Path) -> None:
    with fleet(tmp_path, broker, {}) as proxies:
        with clients_at(proxies.url, tmp_path, broker, "rolling") as clients:
            for number in range(2):
                proxies.restart(number, tmp_path, broker)
                clients.go_on(f"proxy {number} restarted")
            assert clients.broken() == []
        assert all(map(faultless, proxies.proxies))
