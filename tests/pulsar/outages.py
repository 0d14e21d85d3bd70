"""Own real clients that go on while broker or proxy are killed, stand still or restart, and what became of it all.

Rule: half of the producers write to a topic with deduplication, where Pulsar promises each message once; the others may
find a message stored twice. Recovery counts from the moment in which the broker or the proxy serves again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.pulsar.admin import Admin
from tests.pulsar.askers import Asked, askers
from tests.pulsar.open_loop import (
    JavaReceiver,
    Load,
    Producers,
    Receiver,
    Tally,
    arrivals,
    java_producers,
    python_producers,
    stored,
)
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.standalone import Broker
from tests.support.patience import patient

ONCE: Final = "once"
TOPICS: Final = (ONCE, "plain")
ASKERS: Final = 40
PER_SECOND: Final = 50.0
_LISTED: Final = 40
_GO_ON_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05


class OutageFailed(Exception):
    """A client did not go on."""


def writes_once(producer: str) -> bool:
    """Return whether a producer writes to the topic with deduplication: producers take topics in turn."""
    return int(producer.rpartition("-")[2]) % len(TOPICS) == TOPICS.index(ONCE)


class Clients:
    """Producers and receivers in Python and Java, and askers, all at one service URL."""

    def __init__(self, producers: list[Producers], received: dict[str, Receiver], asked: Asked) -> None:
        self._producers = producers
        self._received = received
        self.asked = asked

    def _tallies(self) -> dict[str, Tally]:
        return {name: tally for each in self._producers for name, tally in each.tallies().items()}

    def go_on(self, what: str = "") -> None:
        """Wait until each client has done more than it had done by now; raises OutageFailed."""
        began = time.monotonic()
        waits: dict[str, Callable[[], bool]] = {
            **{name: partial(self._sends, name, tally.acked) for name, tally in self._tallies().items()},
            **{f"receiver {name}": partial(_receives, each, each.log().count) for name, each in self._received.items()},
            "askers": lambda: self.asked.resumed(began) == ASKERS,
        }
        deadline = began + patient(_GO_ON_SECONDS)
        while waits := {name: has for name, has in waits.items() if not has()}:
            if time.monotonic() > deadline:
                raise OutageFailed(f"{what}: {sorted(waits)} did not go on within {deadline - began:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def _sends(self, name: str, before: int) -> bool:
        return self._tallies()[name].acked > before

    def broken(self, broker: Broker, topics: list[str]) -> list[str]:
        """End sending, and return what Pulsar promises and was not kept, by what the broker has stored; a line each."""
        for each in self._producers:
            each.stop()
        tallies = self._tallies()
        deadline = time.monotonic() + patient(_GO_ON_SECONDS)
        while any(each.log().missing(tallies) for each in self._received.values()) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        store = stored(broker.service_url, topics)
        once = {name: tally for name, tally in tallies.items() if writes_once(name)}
        found = [f"{name}: {tally} not acknowledged" for name, tally in tallies.items() if tally.acked < tally.sent]
        found += store.faults(once) + store.faults({name: tallies[name] for name in tallies.keys() - once}, once=False)
        for name, receiver in self._received.items():
            lacks = set(store.messages) - set(receiver.log().messages)
            found += [f"{name}: {len(lacks)} messages were not delivered"] if lacks else []
        return found + self.asked.wrong[:5]


def _receives(receiver: Receiver, before: int) -> bool:
    return receiver.log().count > before


class Run:
    """A namespace with its topics, and the clients in it."""

    def __init__(self, directory: Path, broker: Broker, name: str) -> None:
        self._directory = directory
        self._broker = broker
        self._name = name
        self._listed = f"public/{name}-listed"
        self._topics = [f"persistent://public/{name}-{each}/topic" for each in TOPICS]

    def _prepare(self) -> frozenset[str]:
        """Create namespaces and topics; return the topics that lists must have."""
        admin = Admin(self._broker.admin_url)
        for each in TOPICS:
            admin.create_namespace(f"public/{self._name}-{each}")
            # What all have received stays: it is read once more at the end.
            forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            admin.call("POST", f"/admin/v2/namespaces/public/{self._name}-{each}/retention", forever)
        admin.call("POST", f"/admin/v2/namespaces/public/{self._name}-{ONCE}/deduplication", True)
        admin.create_namespace(self._listed)
        for topic in self._topics:
            admin.create_topic(topic)
        for number in range(_LISTED):
            admin.create_topic(f"persistent://{self._listed}/listed-{number}")
        return frozenset(admin.topics(self._listed))

    @contextmanager
    def clients(self, service_url: str) -> Iterator[Clients]:
        """Run all clients until the block ends; raises MissingToolError, ProcessFailedError."""
        listed = self._prepare()
        load = Load(self._topics, len(self._topics), PER_SECOND)
        with ExitStack() as stack:
            java = JavaReceiver(self._directory, service_url, self._topics, f"{self._name}-java")
            stack.callback(java.stop)
            python = stack.enter_context(arrivals(service_url, self._topics, f"{self._name}-python"))
            producers: list[Producers] = [
                stack.enter_context(python_producers(service_url, "python", load)),
                stack.enter_context(java_producers(self._directory, service_url, "java", load)),
            ]
            asked = stack.enter_context(askers(host_and_port(service_url), self._listed, listed, ASKERS))
            clients = Clients(producers, {"python": python, "java": java}, asked)
            clients.go_on()
            yield clients

    def broken(self, clients: Clients) -> list[str]:
        """End sending, and return what was not kept."""
        return clients.broken(self._broker, self._topics)
