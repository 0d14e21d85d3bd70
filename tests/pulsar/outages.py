"""Own real clients that go on while broker or proxy are killed, stand still or restart, and what became of it all.

Rule: the same clients run with a proxy and without one, so that what Pulsar itself does not promise is seen beside it.
Half of the producers write to a topic with deduplication, where Pulsar promises each message once; the others may find
a message stored twice. Recovery counts from the moment in which the broker or the proxy serves again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.pulsar.admin import Admin
from tests.pulsar.askers import Asked, askers
from tests.pulsar.open_loop import Load, Producers, Tally, java_producers, python_producers
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.receivers import Fate, Receiver, fates, receivers, stored
from tests.pulsar.standalone import Broker
from tests.support.patience import patient

ONCE: Final = "once"
TOPICS: Final = (ONCE, "plain")
_LISTED: Final = 40
_GO_ON_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Size:
    """How many clients there are: producers of each language and topic, and askers."""

    producers: int = 1
    per_second: float = 50.0
    askers: int = 100


@dataclass(frozen=True, slots=True)
class Recovered:
    """Seconds until the slowest client of each kind went on."""

    what: str
    seconds: dict[str, float]


class OutageFailed(Exception):
    """A client did not go on."""


class Clients:
    """Producers and receivers in Python and Java, and askers, all at one service URL."""

    def __init__(self, producers: list[Producers], received: dict[str, Receiver], asked: Asked, size: Size) -> None:
        self._producers = producers
        self.received = received
        self.asked = asked
        self._size = size
        self.recovered: list[Recovered] = []

    def tallies(self) -> dict[str, Tally]:
        """Return what all producers know."""
        return {name: tally for each in self._producers for name, tally in each.tallies().items()}

    def go_on(self, what: str = "") -> Recovered:
        """Wait until each client has done more than it had done by now; raises OutageFailed."""
        began = time.monotonic()
        acked = {name: tally.acked for name, tally in self.tallies().items()}
        came = {name: len(set(each.log().ids)) for name, each in self.received.items()}
        waits: dict[str, Callable[[], bool]] = {
            **{f"producer {name}": partial(self._sends, name, at) for name, at in acked.items()},
            **{f"consumer {name}": partial(self._receives, name, at) for name, at in came.items()},
            "askers": lambda: self.asked.resumed(began) == self._size.askers,
        }
        seconds: dict[str, float] = {}
        deadline = began + patient(_GO_ON_SECONDS)
        while waits:
            for name in [name for name, has in waits.items() if has()]:
                seconds[name] = round(time.monotonic() - began, 2)
                del waits[name]
            if waits and time.monotonic() > deadline:
                raise OutageFailed(f"{what}: {sorted(waits)} did not go on within {deadline - began:.0f} s")
            time.sleep(_LOOK_SECONDS)
        kinds: dict[str, float] = {}
        for name, each in seconds.items():
            kind = name.partition("-")[0]
            kinds[kind] = max(kinds.get(kind, 0.0), each)
        found = Recovered(what, kinds)
        if what:
            self.recovered.append(found)
        return found

    def _sends(self, name: str, before: int) -> bool:
        return self.tallies()[name].acked > before

    def _receives(self, name: str, before: int) -> bool:
        return len(set(self.received[name].log().ids)) > before

    def end_sending(self) -> None:
        """Stop the producers when all is acknowledged, and wait until all receivers have it."""
        for each in self._producers:
            each.stop()
        total = sum(tally.acked for tally in self.tallies().values())
        deadline = time.monotonic() + patient(_GO_ON_SECONDS)
        while time.monotonic() < deadline:
            if all(len(set(each.log().messages)) >= total for each in self.received.values()):
                return
            time.sleep(_LOOK_SECONDS)


def writes_once(producer: str) -> bool:
    """Return whether a producer writes to the topic with deduplication: producers take topics in turn."""
    return int(producer.rpartition("-")[2]) % len(TOPICS) == TOPICS.index(ONCE)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run."""

    fates: dict[str, Fate]
    delivered_again: dict[str, int]
    recovered: list[Recovered]
    asked: Asked

    def broken(self) -> list[str]:
        """Return what Pulsar promises and the run did not keep, one line each."""
        found = []
        for name, fate in self.fates.items():
            wrong = {"lost": fate.lost, "out of order": fate.out_of_order, "undelivered": fate.undelivered}
            wrong["not acknowledged"] = fate.sent - fate.acked
            if writes_once(name):
                wrong["stored twice in spite of deduplication"] = fate.stored_twice
            found += [f"{name}: {count} of {fate.sent} {what}" for what, count in wrong.items() if count]
        return found + self.asked.wrong[:5]

    def shown(self) -> dict[str, Any]:
        """Return the sums, for a file of results."""
        sums: Counter[str] = Counter()
        for name, fate in self.fates.items():
            for what, count in asdict(fate).items():
                once = what == "stored_twice" and writes_once(name)
                sums["stored_twice_in_spite_of_deduplication" if once else what] += count
        asked = self.asked
        return {
            "messages": dict(sums),
            "delivered_again": self.delivered_again,
            "recovered": [asdict(each) for each in self.recovered],
            "asked": {
                "answered": asked.answered, "failed": asked.failed, "errors": dict(sorted(asked.errors.items())),
                "closed": asked.closed, "refused": asked.refused, "unanswered": asked.unanswered,
                "wrong": len(asked.wrong), "longest_seconds": round(asked.longest_seconds, 2),
            },
        }  # fmt: skip


class Run:
    """A namespace with its topics, and the clients in it."""

    def __init__(self, directory: Path, broker: Broker, name: str, size: Size) -> None:
        self._directory = directory
        self._broker = broker
        self._name = name
        self._size = size
        self._namespace = f"public/{name}"
        self._listed = f"public/{name}-listed"
        self._topics = {each: f"persistent://{self._namespace}-{each}/topic" for each in TOPICS}

    def prepare(self) -> frozenset[str]:
        """Create namespaces and topics; return the topics that lists must have."""
        admin = Admin(self._broker.admin_url)
        for each in TOPICS:
            admin.create_namespace(f"{self._namespace}-{each}")
            # What all have received stays: it is read once more at the end.
            forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            admin.call("POST", f"/admin/v2/namespaces/{self._namespace}-{each}/retention", forever)
        admin.call("POST", f"/admin/v2/namespaces/{self._namespace}-{ONCE}/deduplication", True)
        admin.create_namespace(self._listed)
        for topic in self._topics.values():
            admin.create_topic(topic)
        for number in range(_LISTED):
            admin.create_topic(f"persistent://{self._listed}/listed-{number}")
        return frozenset(admin.topics(self._listed))

    @contextmanager
    def clients(self, service_url: str) -> Iterator[Clients]:
        """Run all clients until the block ends; raises MissingToolError, ProcessFailedError."""
        listed = self.prepare()
        topics = list(self._topics.values())
        with ExitStack() as stack:
            received = stack.enter_context(receivers(self._directory, service_url, topics, self._name))
            load = Load(topics, len(topics) * self._size.producers, self._size.per_second)
            producers: list[Producers] = [
                stack.enter_context(python_producers(service_url, "python", load)),
                stack.enter_context(java_producers(self._directory, service_url, "java", load)),
            ]
            asked = stack.enter_context(askers(host_and_port(service_url), self._listed, listed, self._size.askers))
            clients = Clients(producers, received, asked, self._size)
            clients.go_on()
            yield clients

    def report(self, clients: Clients) -> Report:
        """End sending, and judge what is stored by the broker's own word."""
        clients.end_sending()
        store = stored(self._broker.service_url, self._topics.values())
        again = {name: each.log().repeated_ids for name, each in clients.received.items()}
        return Report(fates(clients.tallies(), store, clients.received), again, clients.recovered, clients.asked)
