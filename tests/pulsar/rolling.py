"""Own proxies behind one address that are restarted one after the other, and the balancer before them.

Rule: the balancer passes bytes and asks /readyz a few times a second, as balancers do; it is told nothing. A proxy that
leaves says so there first (`shutdownPreDrainMillis`), so that it gets no new connection when it has stopped listening.
"""

import itertools
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.pulsar.behind_one_address import Forwarder
from tests.pulsar.proxy_process import Proxy, host_and_port, start_proxy, stop_proxy
from tests.pulsar.standalone import Broker
from tests.support.patience import patient
from tests.support.sockets.ports import free_ports

_LOOK_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 1.0
_READY_SECONDS: Final = 30.0
LEAVING: Final = {"shutdownPreDrainMillis": "500", "shutdownDrainMillis": "2000"}


def ready(proxy: Proxy) -> bool:
    """Return whether a proxy says that it takes clients."""
    try:
        with urllib.request.urlopen(f"{proxy.web_url}/readyz", timeout=patient(_ANSWER_SECONDS)):
            return True
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass
    return False


class Fleet:
    """Running proxies; `service_url` is that of the balancer before them."""

    def __init__(self, directory: Path, broker: Broker, keys: Mapping[str, str], count: int) -> None:
        self._directory = directory
        self._broker = broker
        ports = free_ports(2 * count)
        self._keys = [
            {**LEAVING, **keys, "servicePort": str(service), "webServicePort": str(web)}
            for service, web in zip(ports[::2], ports[1::2], strict=True)
        ]
        self.proxies: list[Proxy] = []
        self._ready: frozenset[int] = frozenset()
        self._turns = itertools.count()
        self._stop = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self.service_url = ""

    def start(self) -> None:
        """Start all proxies, and look at them from then on."""
        for keys in self._keys:
            self.proxies.append(start_proxy(self._directory, self._broker, keys))
        self._looking.start()
        self._until_ready(range(len(self.proxies)))

    def stop(self) -> None:
        """End all proxies; raises ProcessFailedError for an unclean end."""
        self._stop.set()
        if self._looking.is_alive():
            self._looking.join()
        for proxy in self.proxies:
            stop_proxy(proxy)

    def restart(self, number: int) -> None:
        """Restart one proxy by SIGTERM, and wait until the balancer sends it clients again."""
        stop_proxy(self.proxies[number])
        self.proxies[number] = start_proxy(self._directory, self._broker, self._keys[number])
        self._until_ready([number])

    def next_port(self) -> int:
        """Return the port of the next proxy that was ready at the last look; without one, the next of all."""
        chosen = sorted(self._ready) or range(len(self.proxies))
        number = chosen[next(self._turns) % len(chosen)]
        return host_and_port(self.proxies[number].service_url)[1]

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._ready = frozenset(number for number, proxy in enumerate(self.proxies) if ready(proxy))

    def _until_ready(self, numbers: "range | list[int]") -> None:
        self.proxies[numbers[0]].process.wait_ready(lambda: self._ready.issuperset(numbers), _READY_SECONDS)


@contextmanager
def fleet(directory: Path, broker: Broker, keys: Mapping[str, str], count: int = 3) -> Iterator[Fleet]:
    """Run `count` proxies behind one address until the block ends; raises ProcessFailedError."""
    made = Fleet(directory, broker, keys, count)
    try:
        made.start()
        with Forwarder(iter(made.next_port, None)) as balancer:
            made.service_url = f"pulsar://127.0.0.1:{balancer.port}"
            yield made
    finally:
        made.stop()
