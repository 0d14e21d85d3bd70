"""Own real clients that go on while broker or proxy are killed, stand still or restart, and what became of messages.

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
from tests.pulsar.standalone import Broker
from tests.support.patience import patient

ONCE: Final = "once"
TOPICS: Final = (ONCE, "plain")
PER_SECOND: Final = 50.0
_GO_ON_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05


class OutageFailed(Exception):
    """A client did not go on."""


def writes_once(producer: str) -> bool:
    """Return whether a producer writes to the topic with deduplication: producers take topics in turn."""
    return int(producer.rpartition("-")[2]) % len(TOPICS) == TOPICS.index(ONCE)


class Clients:
    """Producers and receivers in Python and Java, all at one service URL."""

    def __init__(
        self, broker: Broker, topics: list[str], producers: list[Producers], received: dict[str, Receiver]
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._producers = producers
        self._received = received

    def _tallies(self) -> dict[str, Tally]:
        return {name: tally for each in self._producers for name, tally in each.tallies().items()}

    def go_on(self, what: str = "") -> None:
        """Wait until each client has done more than it had done by now; raises OutageFailed."""
        waits: dict[str, Callable[[], bool]] = {
            **{name: partial(self._sends, name, tally.acked) for name, tally in self._tallies().items()},
            **{f"receiver {name}": partial(_receives, each, each.log().count) for name, each in self._received.items()},
        }
        deadline = time.monotonic() + patient(_GO_ON_SECONDS)
        while waits := {name: has for name, has in waits.items() if not has()}:
            if time.monotonic() > deadline:
                raise OutageFailed(f"{what}: {sorted(waits)} did not go on")
            time.sleep(_LOOK_SECONDS)

    def _sends(self, name: str, before: int) -> bool:
        return self._tallies()[name].acked > before

    def broken(self) -> list[str]:
        """End sending, and return what Pulsar promises and was not kept, by what the broker has stored; a line each."""
        for each in self._producers:
            each.stop()
        tallies = self._tallies()
        deadline = time.monotonic() + patient(_GO_ON_SECONDS)
        while any(each.log().missing(tallies) for each in self._received.values()) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        store = stored(self._broker.service_url, self._topics)
        once = {name: tally for name, tally in tallies.items() if writes_once(name)}
        found = [f"{name}: {tally} not acknowledged" for name, tally in tallies.items() if tally.acked < tally.sent]
        found += store.faults(once) + store.faults({name: tallies[name] for name in tallies.keys() - once}, once=False)
        for name, receiver in self._received.items():
            lacks = set(store.messages) - set(receiver.log().messages)
            found += [f"{name}: {len(lacks)} messages were not delivered"] if lacks else []
        return found


def _receives(receiver: Receiver, before: int) -> bool:
    return receiver.log().count > before


@contextmanager
def clients_at(service_url: str, directory: Path, broker: Broker, name: str) -> Iterator[Clients]:
    """Run all clients on topics of their own until the block ends; raises MissingToolError, ProcessFailedError."""
    admin, topics = Admin(broker.admin_url), []
    for each in TOPICS:
        namespace = f"public/{name}-{each}"
        admin.create_namespace(namespace)
        # What all have received stays: it is read once more at the end.
        admin.keep_messages(namespace)
        admin.call("POST", f"/admin/v2/namespaces/{namespace}/deduplication", each == ONCE)
        topics.append(f"persistent://{namespace}/topic")
        admin.create_topic(topics[-1])
    load = Load(topics, len(topics), PER_SECOND)
    with ExitStack() as stack:
        java = JavaReceiver(directory, service_url, topics, f"{name}-java")
        stack.callback(java.stop)
        python = stack.enter_context(arrivals(service_url, topics, f"{name}-python"))
        producers: list[Producers] = [
            stack.enter_context(python_producers(service_url, "python", load)),
            stack.enter_context(java_producers(directory, service_url, "java", load)),
        ]
        clients = Clients(broker, topics, producers, {"python": python, "java": java})
        clients.go_on()
        yield clients
