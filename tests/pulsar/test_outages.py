"""Brokers and proxies that are killed, stand still or restart under load, with clients in Python and Java."""

import time
from pathlib import Path
from typing import Final

import pytest

from tests.pulsar.conftest import DIRECT
from tests.pulsar.outages import Run, Size
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy, run_proxy, start_proxy, stop_proxy
from tests.pulsar.rolling import fleet
from tests.pulsar.standalone import Broker, Standalone

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.timeout(400),
    pytest.mark.skipif(DIRECT, reason="TEST_DIRECT=1: there is no proxy"),
]

SIZE: Final = Size(askers=40)
# Above the time-outs of no client, and of a probe of the proxy.
FROZEN_SECONDS: Final = 10.0


def faultless(proxy: Proxy) -> bool:
    """Return whether no code of the proxy has failed."""
    return sum(proxy_metrics(proxy).family("pulsar_proxy_internal_errors_total").values()) == 0


def test_a_broker_that_is_killed_or_stands_still_loses_nothing_and_all_clients_go_on(
    own_broker: Standalone, tmp_path: Path
) -> None:
    run = Run(tmp_path, own_broker.broker, "broker-outage", SIZE)
    with run_proxy(tmp_path, own_broker.broker) as proxy:
        with run.clients(proxy.service_url) as clients:
            own_broker.kill()
            own_broker.start()
            clients.go_on("the broker was killed")
            with own_broker.frozen():
                time.sleep(FROZEN_SECONDS)
            clients.go_on("the broker stood still")
            report = run.report(clients)
        assert report.broken() == []
        assert report.asked.broken() == []
        assert faultless(proxy)


def test_a_proxy_that_is_killed_loses_nothing_and_all_clients_go_on(broker: Broker, tmp_path: Path) -> None:
    run = Run(tmp_path, broker, "proxy-outage", SIZE)
    proxy = start_proxy(tmp_path, broker)
    try:
        with run.clients(proxy.service_url) as clients:
            proxy.process.kill()
            assert not clients.asked.unanswered
            proxy = start_proxy(tmp_path, broker, proxy.keys)
            clients.go_on("the proxy was killed")
            report = run.report(clients)
        assert report.broken() == []
        assert report.asked.broken() == []
        assert faultless(proxy)
    finally:
        stop_proxy(proxy)


def test_three_proxies_that_restart_one_after_the_other_fail_no_request(broker: Broker, tmp_path: Path) -> None:
    run = Run(tmp_path, broker, "rolling", SIZE)
    with fleet(tmp_path, broker, {}) as proxies:
        with run.clients(proxies.service_url) as clients:
            for number in range(len(proxies.proxies)):
                proxies.restart(number)
                clients.go_on(f"proxy {number} restarted")
            report = run.report(clients)
        assert report.broken() == []
        assert report.asked.broken(failures=True) == []
        assert all(map(faultless, proxies.proxies))
