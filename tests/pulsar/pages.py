"""Owns what the tests read from the metrics pages of the proxy and of the broker."""

import urllib.request
from typing import Final

from tests.pulsar.proxy_process import Proxy
from tests.pulsar.standalone import Broker
from tests.support.patience import patient
from tests.support.web.web_pages import Scrape

_TIMEOUT_SECONDS: Final = 90.0
# The broker takes memory for the encoded list once per topic list that it answers, and once per frame to a watcher.
_LISTS_OF_BROKER: Final = "pulsar_broker_topic_list_direct_wait_time_ms_count"


def proxy_metrics(proxy: Proxy) -> Scrape:
    """Return what the proxy shows now."""
    return Scrape(_get(f"{proxy.web_url}/metrics"), "standalone")


def wait_until_whole(proxy: Proxy) -> None:
    """Wait for the web port, which opens after the service port: without it the proxy is not yet at rest."""
    proxy.process.wait_ready(lambda: _serves(proxy), _TIMEOUT_SECONDS)


def lists_answered_by_broker(broker: Broker) -> int:
    """Count the topic lists that the broker has sent since its start, to whomever."""
    for line in _get(f"{broker.admin_url}/metrics/").splitlines():
        if line.startswith(_LISTS_OF_BROKER):
            return int(float(line.rpartition(" ")[2]))
    raise LookupError(f"expected {_LISTS_OF_BROKER} of pulsar >= 4.2 at {broker.admin_url}")


def _serves(proxy: Proxy) -> bool:
    try:
        _get(f"{proxy.web_url}/metrics")
    except OSError:
        return False
    return True


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=patient(_TIMEOUT_SECONDS)) as response:
        page: bytes = response.read()
    return page.decode()
