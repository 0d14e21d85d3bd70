"""Owns the scene: a proxy in a memory cgroup, producers of two languages, a broker whose topics can be slowed.

Pressure is what it is in life: a broker takes less than producers offer, and what it does not take waits in the proxy.
`relayUnsentBytes` is raised for it: with its default of 128 KiB the producers of one machine fill no container.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.overload_real.samples import Sampler
from tests.pulsar.admin import Admin
from tests.pulsar.open_loop import Arrivals, Load, Producers, Tally, arrivals, java_producers, python_producers
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import COMMAND, Proxy, run_proxy
from tests.pulsar.standalone import Broker
from tests.pulsar.throttle_events import decisions
from tests.support.memory_group import MemoryGroup, memory_group
from tests.support.web.web_pages import Scrape

MIB: Final = 1 << 20
LANGUAGES: Final = ("java", "python")
NEIGHBOUR: Final = "neighbour"
NEIGHBOUR_RATE: Final = 1000
UNSENT_BYTES: Final = 2 * MIB


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run; rates are of each producer and each topic, `seconds` those under pressure."""

    producers: int = 30
    # So many that each topic has as many producers of either language.
    topics: int = 5
    per_second: float = 10
    message_bytes: int = 20_000
    # A topic is offered 1,200,000 bytes a second: twice as much.
    slowed_bytes: int = 600_000
    # 8 MB, more than proxy, broker and kernel hold of a producer. A client without a bound dies before the proxy does:
    # it keeps what it has written to a connection that nobody reads, and also what has timed out of that.
    most_pending: int = 400
    limit_mib: int = 128
    seconds: float = 600
    phase_seconds: float = 20
    pairs: int = 2


class Scene:
    """The running parts."""

    def __init__(self, stack: ExitStack, directory: Path, broker: Broker, size: Size) -> None:
        self.size, self._broker, self._directory = size, broker, directory
        self._admin = Admin(broker.admin_url)
        self._namespace = f"public/pressed-{time.time_ns()}"
        self._admin.create_namespace(self._namespace)
        calm = f"public/calm-{time.time_ns()}"
        self._admin.create_namespace(calm)
        self.topics = [f"persistent://{self._namespace}/{number}" for number in range(size.topics)]
        self._neighbour = f"persistent://{calm}/open-loop"
        for topic in (*self.topics, self._neighbour):
            self._admin.create_topic(topic)
        self.group: MemoryGroup = stack.enter_context(memory_group(size.limit_mib * MIB))
        self._proxy = ExitStack()
        stack.push(self._proxy)
        self.proxy: Proxy = self._proxy.enter_context(
            run_proxy(directory, broker, self._keys(), self.group.command(COMMAND))
        )
        self.sampler = stack.enter_context(Sampler(self.proxy, self.group))
        self.arrived: Arrivals = stack.enter_context(arrivals(broker.service_url, self.topics, queue_size=100))
        self.neighbour: Arrivals = stack.enter_context(arrivals(self.proxy.service_url, [self._neighbour]))
        self._producers: list[Producers] = [
            stack.enter_context(
                python_producers(broker.service_url, NEIGHBOUR, Load([self._neighbour], 1, NEIGHBOUR_RATE))
            )
        ]
        load = Load(
            self.topics, size.producers // 2, size.per_second, size.message_bytes, most_pending=size.most_pending
        )
        url = self.proxy.service_url
        self._producers.append(stack.enter_context(java_producers(directory, url, "java", load)))
        self._producers.append(stack.enter_context(python_producers(url, "python", load)))

    def _keys(self) -> dict[str, str]:
        return {
            "overloadThrottleEnabled": "true",
            "overloadSignals": "proxy",
            "relayUnsentBytes": str(UNSENT_BYTES),
            "eventLogDirectory": str(self._directory / "events"),
        }

    def tallies(self, name: str) -> dict[str, Tally]:
        """Return what the producers of one name know."""
        found = {name: tally for each in self._producers for name, tally in each.tallies().items()}
        return {own: tally for own, tally in found.items() if own.startswith(name)}

    def press(self) -> None:
        """Limit the broker to half of what producers offer."""
        self._rate(self.size.slowed_bytes)

    def free(self) -> None:
        """Remove the limit: the broker takes everything again."""
        self._rate(-1)

    def _rate(self, size: int) -> None:
        body = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": size}
        self._admin.call("POST", f"/admin/v2/namespaces/{self._namespace}/publishRate", body)

    def shown(self) -> Scrape:
        """Return the proxy's metrics."""
        return proxy_metrics(self.proxy)

    def paused(self) -> float:
        """Return the connections that are paused now."""
        return self.shown()("overload_paused_connections", what="paused")

    def until(self, condition: Any, seconds: float) -> None:
        """Wait until a condition holds; raises ProcessFailedError."""
        self.proxy.process.wait_ready(lambda: bool(condition()), seconds)

    def until_caught_up(self, seconds: float) -> None:
        """Wait until `caught_up`; raises ProcessFailedError that names the producers that are behind."""
        try:
            self.until(self.caught_up, seconds)
        except ProcessFailedError as error:
            behind = {own: tally for own, tally in self._pressed().items() if tally.waiting > self.size.per_second}
            raise ProcessFailedError(f"behind, with {self.paused():.0f} paused: {behind}\n{error}") from error

    def caught_up(self) -> bool:
        """Return whether no producer has more than a second's messages under way, and nobody is paused."""
        return max(tally.waiting for tally in self._pressed().values()) <= self.size.per_second and not self.paused()

    def _pressed(self) -> dict[str, Tally]:
        return {own: tally for name in LANGUAGES for own, tally in self.tallies(name).items()}

    def stop(self) -> None:
        """Stop all producers, and wait for what is acknowledged."""
        for each in self._producers:
            each.stop()

    def decisions(self) -> list[dict[str, Any]]:
        """End the proxy and return what the throttle decided."""
        self._proxy.close()
        return decisions(self._directory / "events", "threshold")


@contextmanager
def scene(directory: Path, broker: Broker, size: Size) -> Iterator[Scene]:
    """Run a scene until the block ends; raises NoMemoryGroupError, MissingToolError, ProcessFailedError."""
    with ExitStack() as stack:
        yield Scene(stack, directory, broker, size)
