"""Own producers that send at a fixed rate whatever is acknowledged, in Python and in Java, and who receives it all.

Rule: a producer has a client and so a connection of its own, and a message says whose it is, its number, and the
microsecond at which it was due. No message is sent again by hand: what is doubled or lost was so on its way. What was
stored and what was delivered are counted apart. A number that is stored under two message ids was doubled on its way to
the broker; a message id that comes twice was delivered again, because its acknowledgement was lost. Pulsar promises
neither away without deduplication; nothing that was acknowledged to its producer may be missing.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import pulsar

from tests.pulsar.java_consumers import Client, Role
from tests.pulsar.messages import connect
from tests.support.patience import patient, patient_millis

_STEP_SECONDS: Final = 0.01
_RECEIVE_MILLIS: Final = 200
_READ_MILLIS: Final = 20_000
_START_SECONDS: Final = 90.0
_END_SECONDS: Final = 120.0
# Far above what any test has under way.
_ENDLESS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """The producers of one run; each takes the next of the topics. A rate of 0 sends nothing, 0 ms is no time-out.

    A producer with `most_pending` messages that are not acknowledged withholds what is due, as a client with a bounded
    queue does.
    """

    topics: Sequence[str]
    count: int
    per_second: float
    message_bytes: int = 100
    keep_alive_seconds: int = 30
    send_timeout_millis: int = 0
    most_pending: int = _ENDLESS


@dataclass(slots=True)
class Tally:
    """What one producer knows of its messages; `failed` are the numbers of those that were not acknowledged."""

    sent: int = 0
    acked: int = 0
    failed: list[int] = field(default_factory=list)
    withheld: int = 0
    closed: bool = False

    @property
    def waiting(self) -> int:
        """Return the number of messages that were sent and are neither acknowledged nor given up."""
        return self.sent - self.acked - len(self.failed)


class JavaProducers(Role):
    """Producers of the Java client."""

    def __init__(self, directory: Path, service_url: str, name: str, load: Load) -> None:
        self._tallies: dict[str, Tally] = {}
        super().__init__(
            directory, Client.NEW, name, "produce", service_url, ",".join(load.topics), name, load.count,
            load.per_second, load.message_bytes, load.keep_alive_seconds, load.send_timeout_millis, load.most_pending,
        )  # fmt: skip
        self.process.wait_ready(lambda: self.is_over() or len(self._tallies) == load.count, _START_SECONDS)
        self.ensure_going()

    def look(self) -> None:
        for event, name, *numbers in self.news():
            tally = self._tallies.setdefault(name, Tally())
            if event == "failed":
                tally.failed.append(int(numbers[0]))
            else:
                tally.sent, tally.acked, tally.withheld, closed = map(int, numbers)
                tally.closed = bool(closed)

    def tallies(self) -> dict[str, Tally]:
        self.look()
        return self._tallies


class PythonProducers:
    """Producers of the C++ client, one for each of these clients, paced by one thread."""

    def __init__(self, clients: Sequence[pulsar.Client], name: str, load: Load) -> None:
        self._load = load
        self._producers = {
            f"{name}-{number}": client.create_producer(
                load.topics[number % len(load.topics)], producer_name=f"{name}-{number}", batching_enabled=False,
                send_timeout_millis=load.send_timeout_millis, max_pending_messages=_ENDLESS,
            )
            for number, client in enumerate(clients)
        }  # fmt: skip
        self._tallies = {own: Tally() for own in self._producers}
        self._stop = threading.Event()
        self._pace = threading.Thread(target=self._run)
        self._pace.start()

    def tallies(self) -> dict[str, Tally]:
        return self._tallies

    def stop(self) -> None:
        self.end()
        for name, producer in self._producers.items():
            deadline = time.monotonic() + patient(_END_SECONDS)
            while self._tallies[name].waiting and time.monotonic() < deadline:
                time.sleep(_STEP_SECONDS)
            producer.close()
            self._tallies[name].closed = True

    def end(self) -> None:
        """Stop to send, whatever waits."""
        self._stop.set()
        self._pace.join()

    def _run(self) -> None:
        began, began_micros = time.monotonic(), time.time_ns() // 1000
        while not self._stop.wait(_STEP_SECONDS):
            due = int((time.monotonic() - began) * self._load.per_second)
            for name, producer in self._producers.items():
                tally = self._tallies[name]
                while (offered := tally.sent + tally.withheld) < due:
                    if tally.waiting < self._load.most_pending:
                        self._send(name, producer, began_micros + int(offered / self._load.per_second * 1e6))
                    else:
                        tally.withheld += 1

    def _send(self, name: str, producer: pulsar.Producer, due_micros: int) -> None:
        tally = self._tallies[name]
        number, tally.sent = tally.sent, tally.sent + 1
        message = f"{name} {number} {due_micros} ".encode()

        def done(result: pulsar.Result, _: object) -> None:
            if result == pulsar.Result.Ok:
                tally.acked += 1
            else:
                tally.failed.append(number)

        producer.send_async(message.ljust(self._load.message_bytes, b"."), done)


@dataclass
class Log:
    """Messages in the order in which they came: producer and number, the id of each, and delays in milliseconds."""

    messages: list[tuple[str, int]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def add(self, message: pulsar.Message) -> None:
        name, number, due, _ = message.data().split(b" ", 3)
        self.delays.append(time.time_ns() / 1e6 - int(due) / 1e3)
        self.ids.append(f"{message.topic_name()} {message.message_id()}")
        self.messages.append((name.decode(), int(number)))

    @property
    def count(self) -> int:
        """Count the messages, those that came again once."""
        return len(set(self.ids))

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of each producer, in their order."""
        found: dict[str, list[int]] = defaultdict(list)
        for name, number in list(self.messages):
            found[name].append(number)
        return found

    def faults(self, tallies: Mapping[str, Tally], *, once: bool = True) -> list[str]:
        """Return what was lost, overtaken or doubled on the way; a message that its client gave up may be lost.

        `once`: no message may come twice. What is sent again after a connection was lost comes behind its first time.
        """
        found, numbers = [], self.numbers()
        for name, tally in tallies.items():
            came = numbers[name]
            first = list(dict.fromkeys(came))
            wrong = {
                "lost": len(set(range(tally.sent)) - set(came) - set(tally.failed)),
                "doubled": (len(came) - len(first)) * once,
                "out of order": sum(here > after for here, after in pairwise(first)),
            }
            found += [f"{name}: {count} of {tally.sent} {what}" for what, count in wrong.items() if count]
        return found

    def missing(self, tallies: Mapping[str, Tally]) -> int:
        """Return how many acknowledged messages have not arrived yet."""
        numbers = self.numbers()
        return sum(max(0, tally.acked - len(set(numbers[name]))) for name, tally in tallies.items())


class Arrivals(Log):
    """All that arrives at a consumer of the C++ client, read by one thread."""

    def __init__(self, client: pulsar.Client, topics: Sequence[str], name: str, queue_size: int = 1000) -> None:
        super().__init__()
        self._consumer = client.subscribe(list(topics), name, receiver_queue_size=queue_size)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def log(self) -> Log:
        return self

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_MILLIS)
            except pulsar.Timeout:
                continue
            self.add(message)
            # A connection that has just ended takes no acknowledgement: the message comes again.
            with suppress(pulsar.PulsarException):
                self._consumer.acknowledge(message)


class JavaReceiver(Role):
    """A consumer of the Java client."""

    def __init__(self, directory: Path, service_url: str, topics: Sequence[str], name: str) -> None:
        self._received = Log()
        self._subscribed = False
        super().__init__(directory, Client.NEW, name, "receive", service_url, ",".join(topics), name)
        self.process.wait_ready(lambda: self.is_over() or self._subscribed, _START_SECONDS)
        self.ensure_going()

    def look(self) -> None:
        for words in self.news():
            if len(words) == 1:
                self._subscribed = True
            else:
                self._received.messages.append((words[1], int(words[2])))
                self._received.ids.append(words[3])

    def log(self) -> Log:
        self.look()
        return self._received


Producers = JavaProducers | PythonProducers
Receiver = JavaReceiver | Arrivals


@contextmanager
def java_producers(directory: Path, service_url: str, name: str, load: Load) -> Iterator[JavaProducers]:
    """Run producers in Java until the block ends; raises MissingToolError, ProcessFailedError."""
    made = JavaProducers(directory, service_url, name, load)
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def python_producers(service_url: str, name: str, load: Load) -> Iterator[PythonProducers]:
    """Run producers in Python until the block ends."""
    clients = [connect(service_url) for _ in range(load.count)]
    made = PythonProducers(clients, name, load)
    try:
        yield made
    finally:
        made.end()
        for client in clients:
            client.shutdown()


@contextmanager
def arrivals(
    service_url: str, topics: Sequence[str], name: str = "arrivals", queue_size: int = 1000
) -> Iterator[Arrivals]:
    """Receive until the block ends."""
    client = connect(service_url)
    made = Arrivals(client, topics, name, queue_size)
    try:
        yield made
    finally:
        made.end()
        client.close()


def stored(service_url: str, topics: Iterable[str]) -> Log:
    """Read everything that topics hold from the broker at `service_url`, past any proxy."""
    client, log = connect(service_url), Log()
    try:
        for topic in topics:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            while reader.has_message_available():
                log.add(reader.read_next(timeout_millis=patient_millis(_READ_MILLIS)))
            reader.close()
    finally:
        client.close()
    return log
