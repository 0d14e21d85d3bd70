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
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

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


@contextmanager
def on_a_loop(make: Callable[[], W]) -> Iterator[W]:
    """Have a way on a loop that turns in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def done(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(patient(30))

    async def made() -> W:
        return make()

    way = done(made())
    try:
        yield way
    finally:
        done(way.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patient(30))
        loop.close()


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
def fleet(directory: Path, broker: Broker, keys: Mapping[str, str]) -> Iterator[Fleet]:
    """Run two proxies behind one address until the block ends; raises ProcessFailedError for an unclean end."""
    over = threading.Event()
    with on_a_loop(Fleet) as made:

        def look() -> None:
            while not over.wait(_LOOK_SECONDS):
                made.look()

        looking = threading.Thread(target=look)
        looking.start()
        try:
            for _ in range(2):
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
