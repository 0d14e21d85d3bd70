"""A proxy that takes over from another under load with real clients: nobody is refused, and nothing is lost.

Rule: beside producers, receivers and askers, which reconnect by themselves, there are newcomers, each with a connection
of its own: one that is refused, or closed before CONNECTED, is counted. A drain for good is in `test_outages.py`.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.pulsar.outages import Run
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import Proxy, connected, start_proxy, stop_proxy
from tests.pulsar.standalone import Broker
from tests.pulsar.test_outages import faultless
from tests.support.clients.wire import WireError
from tests.support.patience import patient

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(400)]

SUCCESSORS: Final = 2
NEWCOMERS: Final = 3
_TAKE_OVER_SECONDS: Final = 60.0


@contextmanager
def newcomers(service_url: str) -> Iterator[Counter[str]]:
    """Have clients come one after the other, each with a connection of its own; give what became of them."""
    over, came = threading.Event(), Counter[str]()

    def run() -> None:
        while not over.is_set():
            try:
                with connected(service_url):
                    came["served"] += 1
            except (OSError, WireError) as error:
                came[f"turned away: {error!r}"] += 1

    threads = [threading.Thread(target=run) for _ in range(NEWCOMERS)]
    for thread in threads:
        thread.start()
    try:
        yield came
    finally:
        over.set()
        for thread in threads:
            thread.join()


def took_over(proxy: Proxy) -> bool:
    return '"event":"took over"' in proxy.process.log.read_text(errors="replace")


def successor_of(proxy: Proxy, directory: Path, broker: Broker) -> Proxy:
    """Start a proxy with the keys of another, and wait until it has taken over and the other has ended."""
    directory.mkdir()
    after = start_proxy(directory, broker, proxy.keys, options=("--take-over",))
    try:
        after.process.wait_ready(lambda: took_over(after), _TAKE_OVER_SECONDS)
        if (code := proxy.process.wait()) != 0:
            raise ProcessFailedError(f"the proxy that handed over ended with {code}\n{proxy.process.tail()}")
    except BaseException:
        after.process.stop(patient(5))
        raise
    return after


def test_of_proxies_that_take_over_under_load_none_refuses_a_client_and_nothing_is_lost(
    broker: Broker, tmp_path: Path
) -> None:
    run = Run(tmp_path, broker, "take-over")
    keys = {"controlSocketPath": str(tmp_path / "control.sock"), "shutdownDrainMillis": "1000"}
    proxy = start_proxy(tmp_path, broker, keys)
    try:
        with run.clients(proxy.service_url) as clients:
            with newcomers(proxy.service_url) as came:
                for number in range(SUCCESSORS):
                    proxy = successor_of(proxy, tmp_path / f"successor-{number}", broker)
                    assert faultless(proxy)
                    clients.go_on(f"successor {number}")
            assert run.broken(clients) == []
        assert clients.asked.broken(failures=True) == []
        assert clients.asked.refused == 0
        assert came.keys() == {"served"}
        assert faultless(proxy)
    finally:
        stop_proxy(proxy)
