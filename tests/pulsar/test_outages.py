"""Brokers and proxies that are killed, stand still or restart under load, with clients in Python and Java."""

import time
from pathlib import Path
from typing import Final

import pytest

from tests.pulsar.outages import Run
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy, run_proxy, start_proxy, stop_proxy
from tests.pulsar.standalone import Broker, Standalone
from tests.pulsar.ways import fleet

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(400)]

# Above the time-out of a probe of the proxy, and of no client.
FROZEN_SECONDS: Final = 4.0
PROBES: Final = {"brokerProxyConnectTimeoutMs": "2000"}


def faultless(proxy: Proxy) -> bool:
    """Return whether no code of the proxy has failed."""
    return sum(proxy_metrics(proxy).family("pulsar_proxy_internal_errors_total").values()) == 0


def test_a_broker_that_is_killed_or_stands_still_loses_nothing_and_all_clients_go_on(
    own_broker: Standalone, tmp_path: Path
) -> None:
    run = Run(tmp_path, own_broker.broker, "broker-outage")
    with run_proxy(tmp_path, own_broker.broker, PROBES) as proxy:
        with run.clients(proxy.service_url) as clients:
            own_broker.kill()
            own_broker.start()
            clients.go_on("the broker was killed")
            with own_broker.frozen():
                time.sleep(FROZEN_SECONDS)
            clients.go_on("the broker stood still")
            assert run.broken(clients) == []
        assert clients.asked.broken() == []
        assert faultless(proxy)


def test_a_proxy_that_is_killed_loses_nothing_and_all_clients_go_on(broker: Broker, tmp_path: Path) -> None:
    run = Run(tmp_path, broker, "proxy-outage")
    proxy = start_proxy(tmp_path, broker)
    try:
        with run.clients(proxy.service_url) as clients:
            proxy.process.kill()
            assert not clients.asked.unanswered
            proxy = start_proxy(tmp_path, broker, proxy.keys)
            clients.go_on("the proxy was killed")
            assert run.broken(clients) == []
        assert clients.asked.broken() == []
        assert faultless(proxy)
    finally:
        stop_proxy(proxy)


def test_three_proxies_that_restart_one_after_the_other_fail_no_request(broker: Broker, tmp_path: Path) -> None:
    run = Run(tmp_path, broker, "rolling")
    with fleet(tmp_path, broker, {}) as proxies:
        with run.clients(proxies.url) as clients:
            for number in range(len(proxies.proxies)):
                proxies.restart(number, tmp_path, broker)
                clients.go_on(f"proxy {number} restarted")
            assert run.broken(clients) == []
        assert clients.asked.broken(failures=True) == []
        assert all(map(faultless, proxies.proxies))
