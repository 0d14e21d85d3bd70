"""A proxy that takes over from another under load with real clients: nobody is refused, and nothing is lost.

Rule: beside producers, receivers and askers, which reconnect by themselves, there are newcomers, each with a connection
of its own: one that is refused, or closed before CONNECTED, is counted. A drain for good is in `test_outages.py`.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.pulsar.messages import connect
from tests.pulsar.outages import Run
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import Proxy, connected, start_proxy, stop_proxy
from tests.pulsar.standalone import Broker
from tests.pulsar.test_outages import faultless
from tests.support.clients.wire import WireError
from tests.support.patience import patient

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(400)]

SUCCESSORS: Final = 2
_WIRES: Final = 3
_TAKE_OVER_SECONDS: Final = 60.0


class Newcomers:
    """Clients that come one after the other: bare connections with CONNECT, and whole clients of Pulsar's library."""

    def __init__(self, service_url: str, topic: str) -> None:
        self._service_url = service_url
        self._topic = topic
        self._stop = threading.Event()
        self.came: Counter[str] = Counter()
        self.turned_away: list[str] = []
        works: list[Callable[[], None]] = [self._wire] * _WIRES + [self._library]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
                self.came[work.__name__] += 1
            except (OSError, WireError, pulsar.PulsarException) as error:
                self.turned_away.append(f"{work.__name__}: {error!r}")

    def _wire(self) -> None:
        with connected(self._service_url):
            pass

    def _library(self) -> None:
        client = connect(self._service_url)
        try:
            producer = client.create_producer(self._topic)
            producer.send(b"a newcomer")
        finally:
            client.close()


@contextmanager
def newcomers(service_url: str, topic: str) -> Iterator[Newcomers]:
    made = Newcomers(service_url, topic)
    try:
        yield made
    finally:
        made.end()


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
            with newcomers(proxy.service_url, "persistent://public/default/newcomers") as came:
                for number in range(SUCCESSORS):
                    proxy = successor_of(proxy, tmp_path / f"successor-{number}", broker)
                    assert faultless(proxy)
                    clients.go_on(f"successor {number}")
            assert run.broken(clients) == []
        assert clients.asked.broken(failures=True) == []
        assert clients.asked.refused == 0
        assert came.turned_away == []
        assert came.came.keys() == {"_wire", "_library"}
        assert faultless(proxy)
    finally:
        stop_proxy(proxy)
