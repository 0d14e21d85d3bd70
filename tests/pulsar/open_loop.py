"""Own producers that send at a fixed rate whatever is acknowledged, in Python and in Java, and who receives it all.

Rule: a producer has a client and so a connection of its own, and a message says whose it is, its number, and the
microsecond at which it was due. No message is sent again by hand: what is doubled or lost was so on its way.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pulsar

from tests.pulsar.java_consumers import Client, java_program
from tests.pulsar.messages import connect
from tests.pulsar.process import ChildProcess
from tests.support.patience import patient

_PROGRAM: Final = Path(__file__).parent / "java" / "Producers.java"
_STEP_SECONDS: Final = 0.01
_RECEIVE_MILLIS: Final = 200
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


class Producers(Protocol):
    """Producers of either language."""

    def tallies(self) -> dict[str, Tally]:
        """Return what each producer knows now, by its name."""

    def stop(self) -> None:
        """Stop to send, wait until every message is acknowledged or given up, and close."""


class JavaProducers:
    """Producers in a process of their own."""

    def __init__(self, directory: Path, service_url: str, name: str, load: Load) -> None:
        self._file = directory / f"{name}.events"
        arguments = [
            service_url, ",".join(load.topics), name, load.count, load.per_second, load.message_bytes,
            load.keep_alive_seconds, load.send_timeout_millis, load.most_pending, self._file,
        ]  # fmt: skip
        command = [*java_program(Client.NEW, _PROGRAM), *map(str, arguments)]
        self._process = ChildProcess(name, command, directory / f"{name}.log")
        self._read = 0
        self._tallies: dict[str, Tally] = {}
        self._process.wait_ready(lambda: len(self.tallies()) == load.count, _START_SECONDS)

    def tallies(self) -> dict[str, Tally]:
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                self._take(json.loads(line))
        return self._tallies

    def _take(self, told: dict[str, object]) -> None:
        tally = self._tallies.setdefault(str(told["producer"]), Tally())
        if isinstance(number := told.get("failed"), int):
            tally.failed.append(number)
            return
        sent, acked, withheld = told["sent"], told["acked"], told["withheld"]
        assert isinstance(sent, int)
        assert isinstance(acked, int)
        assert isinstance(withheld, int)
        tally.sent, tally.acked, tally.withheld, tally.closed = sent, acked, withheld, bool(told["closed"])

    def stop(self) -> None:
        self._process.ensure_running()
        self.end()
        self.tallies()

    def end(self) -> None:
        self._process.stop(_END_SECONDS)


class PythonProducers:
    """Producers of the C++ client, paced by one thread."""

    def __init__(self, service_url: str, name: str, load: Load) -> None:
        self._load = load
        self._clients = [connect(service_url) for _ in range(load.count)]
        self._producers: dict[str, pulsar.Producer] = {}
        self._tallies: dict[str, Tally] = {}
        for number, client in enumerate(self._clients):
            own = f"{name}-{number}"
            self._producers[own] = client.create_producer(
                load.topics[number % len(load.topics)], producer_name=own, batching_enabled=False,
                send_timeout_millis=load.send_timeout_millis, max_pending_messages=_ENDLESS,
            )  # fmt: skip
            self._tallies[own] = Tally()
        self._stop = threading.Event()
        self._pace = threading.Thread(target=self._run)
        self._pace.start()

    def tallies(self) -> dict[str, Tally]:
        return self._tallies

    def stop(self) -> None:
        self._end_pace()
        for name, producer in self._producers.items():
            deadline = time.monotonic() + patient(_END_SECONDS)
            while self._tallies[name].waiting and time.monotonic() < deadline:
                time.sleep(_STEP_SECONDS)
            producer.close()
            self._tallies[name].closed = True

    def end(self) -> None:
        self._end_pace()
        for client in self._clients:
            client.shutdown()

    def _end_pace(self) -> None:
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


class Arrivals:
    """All that arrives on topics, received past the proxy: numbers by producer, and delays in milliseconds."""

    def __init__(self, service_url: str, topics: Sequence[str], queue_size: int) -> None:
        self._client = connect(service_url)
        self._consumer = self._client.subscribe(list(topics), "arrivals", receiver_queue_size=queue_size)
        self.numbers: dict[str, list[int]] = {}
        self.delays: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_MILLIS)
            except pulsar.Timeout:
                continue
            name, number, due, _ = message.data().split(b" ", 3)
            self.delays.append(time.time_ns() / 1e6 - int(due) / 1e3)
            self.numbers.setdefault(name.decode(), []).append(int(number))
            self._consumer.acknowledge(message)

    def faults(self, tallies: dict[str, Tally]) -> list[str]:
        """Return what was lost, doubled or overtaken on the way; a message that its client gave up may be lost."""
        found = []
        for name, tally in tallies.items():
            came = self.numbers.get(name, [])
            lost = set(range(tally.sent)) - set(came) - set(tally.failed)
            if lost:
                found.append(f"{name}: lost {len(lost)} of {tally.sent}, first {min(lost)}")
            if len(set(came)) < len(came):
                found.append(f"{name}: doubled {len(came) - len(set(came))} of {tally.sent}")
            if sorted(came) != came:
                found.append(f"{name}: out of order")
        return found

    def missing(self, tallies: dict[str, Tally]) -> int:
        """Return how many acknowledged messages have not arrived yet."""
        return sum(max(0, tally.acked - len(self.numbers.get(name, ()))) for name, tally in tallies.items())

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


@contextmanager
def java_producers(directory: Path, service_url: str, name: str, load: Load) -> Iterator[JavaProducers]:
    """Run producers in Java until the block ends; raises MissingToolError, ProcessFailedError."""
    made = JavaProducers(directory, service_url, name, load)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def python_producers(service_url: str, name: str, load: Load) -> Iterator[PythonProducers]:
    """Run producers in Python until the block ends."""
    made = PythonProducers(service_url, name, load)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def arrivals(service_url: str, topics: Sequence[str], queue_size: int = 1000) -> Iterator[Arrivals]:
    """Receive until the block ends."""
    made = Arrivals(service_url, topics, queue_size)
    try:
        yield made
    finally:
        made.end()
