"""Own fault proxies on a loop in a thread of their own, for clients that block, and several proxies behind one of them.

Rule of the fleet: its balancer passes bytes and asks /readyz a few times a second, as balancers do; it is told nothing.
A proxy that leaves says so there first (`shutdownPreDrainMillis`), so that it gets no new connection when it has
stopped listening.
"""

import asyncio
import itertools
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from tests.pulsar.proxy_process import Proxy, host_and_port, start_proxy, stop_proxy
from tests.pulsar.standalone import Broker
from tests.support.faults.proxy import FaultProxy
from tests.support.patience import patient
from tests.support.sockets.ports import free_ports

T = TypeVar("T")
W = TypeVar("W", bound=FaultProxy)
_LOOK_SECONDS: Final = 0.1
_READY_SECONDS: Final = 30.0
_LEAVING: Final = {"shutdownPreDrainMillis": "500", "shutdownDrainMillis": "2000"}


class Ways:
    """A loop that turns in a thread, with `ways` on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.ways: list[FaultProxy] = []

    def do(self, action: Callable[[], T]) -> T:
        """Do something to a way, on its loop."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(patient(30))

    def add(self, make: Callable[[], W]) -> W:
        """Open one more way."""
        made = self.do(make)
        self.ways.append(made)
        return made

    def close(self) -> None:
        for way in self.ways:
            asyncio.run_coroutine_threadsafe(way.close(), self._loop).result(patient(30))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(30))
        self._loop.close()


@contextmanager
def ways() -> Iterator[Ways]:
    """Have a loop for ways until the block ends."""
    made = Ways()
    try:
        yield made
    finally:
        made.close()


def ready(proxy: Proxy) -> bool:
    """Return whether a proxy says that it takes clients."""
    try:
        with urllib.request.urlopen(f"{proxy.web_url}/readyz", timeout=patient(1.0)):
            return True
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass
    return False


class Fleet(FaultProxy):
    """The address of several proxies, each of which gets the next connection if it was ready at the last look."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies: list[Proxy] = []
        self.ready: frozenset[int] = frozenset()
        self._turns = itertools.count()

    def target(self) -> int:
        chosen = sorted(self.ready) or range(len(self.proxies))
        return host_and_port(self.proxies[chosen[next(self._turns) % len(chosen)]].service_url)[1]

    def logs(self) -> str:
        """Return what the proxies have said since each of them started."""
        return "".join(proxy.process.log.read_text(errors="replace") for proxy in self.proxies)

    def look(self) -> None:
        """Ask all proxies; blocks."""
        self.ready = frozenset(number for number, proxy in enumerate(self.proxies) if ready(proxy))

    def restart(self, number: int, directory: Path, broker: Broker) -> None:
        """Restart one proxy by SIGTERM, and wait until the balancer sends it clients again; blocks."""
        before = self.proxies[number]
        stop_proxy(before)
        self.proxies[number] = start_proxy(directory, broker, before.keys)
        self.until_ready()

    def until_ready(self) -> None:
        everyone = len(self.proxies)
        self.proxies[0].process.wait_ready(lambda: len(self.ready) == everyone, _READY_SECONDS)


@contextmanager
def fleet(directory: Path, broker: Broker, keys: Mapping[str, str], count: int = 3) -> Iterator[Fleet]:
    """Run `count` proxies behind one address until the block ends; raises ProcessFailedError for an unclean end."""
    over = threading.Event()
    with ways() as own:
        made = own.add(Fleet)

        def look() -> None:
            while not over.wait(_LOOK_SECONDS):
                made.look()

        looking = threading.Thread(target=look)
        looking.start()
        try:
            for _ in range(count):
                service, web = map(str, free_ports(2))
                ports = {"servicePort": service, "webServicePort": web}
                made.proxies.append(start_proxy(directory, broker, {**_LEAVING, **keys, **ports}))
            made.until_ready()
            yield made
        finally:
            over.set()
            looking.join()
            for proxy in made.proxies:
                stop_proxy(proxy)
