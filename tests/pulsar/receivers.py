"""Own who receives through a proxy, in Python and in Java, and what the broker itself has stored.

Rule: what was stored and what was delivered are counted apart. A number that is stored under two message ids was
doubled on its way to the broker; a message id that comes twice was delivered again, because its acknowledgement was
lost. Pulsar promises neither away without deduplication; nothing that was acknowledged to its producer may be missing.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import pulsar

from tests.pulsar.java_consumers import Client, java_program
from tests.pulsar.messages import connect
from tests.pulsar.open_loop import Tally
from tests.pulsar.process import ChildProcess, ProcessFailedError
from tests.support.patience import patient_millis

_PROGRAM: Final = Path(__file__).parent / "java" / "Receivers.java"
_RECEIVE_MILLIS: Final = 200
_START_SECONDS: Final = 90.0
_END_SECONDS: Final = 40.0
_READ_MILLIS: Final = 20_000


@dataclass(slots=True)
class Log:
    """Messages in the order in which they came: producer and number, and the id under which each is stored."""

    messages: list[tuple[str, int]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def numbers(self, producer: str) -> list[int]:
        """Return the numbers of one producer, in their order."""
        return [number for name, number in self.messages if name == producer]

    @property
    def repeated_ids(self) -> int:
        """Count how often a message came again that had come before."""
        return len(self.ids) - len(set(self.ids))


class Receiver(Protocol):
    """A receiver of either language."""

    def log(self) -> Log:
        """Return what came so far."""

    def stop(self) -> None:
        """Receive no more, and close."""


class PythonReceiver:
    """A consumer of the C++ client, read by one thread."""

    def __init__(self, service_url: str, topics: Sequence[str], subscription: str) -> None:
        self._log = Log()
        self._client = connect(service_url)
        self._consumer = self._client.subscribe(list(topics), subscription)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def log(self) -> Log:
        return self._log

    def stop(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._client.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_MILLIS)
            except pulsar.Timeout:
                continue
            add(self._log, message)
            # A connection that has just ended takes no acknowledgement: the message comes again.
            with suppress(pulsar.PulsarException):
                self._consumer.acknowledge(message)


class JavaReceiver:
    """A consumer in a process of its own."""

    def __init__(self, directory: Path, service_url: str, topics: Sequence[str], subscription: str) -> None:
        self._file = directory / f"{subscription}.received"
        command = [*java_program(Client.NEW, _PROGRAM), service_url, ",".join(topics), subscription, str(self._file)]
        self._process = ChildProcess(subscription, command, directory / f"{subscription}.log")
        self._read = 0
        self._words: list[str] = []
        self._log = Log()
        try:
            self._process.wait_ready(lambda: self._told("subscribed"), _START_SECONDS)
        except BaseException:
            self._process.stop(_END_SECONDS)
            raise

    def log(self) -> Log:
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.decode().splitlines():
                self._take(line.split(" "))
        return self._log

    def stop(self) -> None:
        if not self._told("closed"):
            self._process.ensure_running()
            self._process.stop(_END_SECONDS)
            if not self._told("closed"):
                raise ProcessFailedError(f"a receiver did not close\n{self._process.tail()}")

    def _told(self, word: str) -> bool:
        self.log()
        return word in self._words

    def _take(self, words: list[str]) -> None:
        if len(words) == 1:
            self._words += words
            return
        self._log.messages.append((words[0], int(words[1])))
        self._log.ids.append(words[2])


def add(log: Log, message: pulsar.Message) -> None:
    """Append a message to a log."""
    name, number, _ = message.data().split(b" ", 2)
    log.messages.append((name.decode(), int(number)))
    log.ids.append(f"{message.topic_name()} {message.message_id()}")


@contextmanager
def receivers(directory: Path, service_url: str, topics: Sequence[str], name: str) -> Iterator[dict[str, Receiver]]:
    """Run a receiver of each language with a subscription of its own; raises MissingToolError, ProcessFailedError."""
    python = PythonReceiver(service_url, topics, f"{name}-python")
    try:
        java = JavaReceiver(directory, service_url, topics, f"{name}-java")
        try:
            yield {"python": python, "java": java}
        finally:
            java.stop()
    finally:
        python.stop()


def stored(service_url: str, topics: Iterable[str]) -> Log:
    """Read everything that topics hold from the broker at `service_url`, past any proxy."""
    client, log = connect(service_url), Log()
    try:
        for topic in topics:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            while reader.has_message_available():
                add(log, reader.read_next(timeout_millis=patient_millis(_READ_MILLIS)))
            reader.close()
    finally:
        client.close()
    return log


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the messages of one producer: numbers of messages."""

    sent: int
    acked: int
    lost: int
    stored_twice: int
    out_of_order: int
    undelivered: int


def fates(tallies: Mapping[str, Tally], store: Log, received: Mapping[str, Receiver]) -> dict[str, Fate]:
    """Judge each producer by what is stored, and by what each of the receivers got of it."""
    found = {}
    for name, tally in tallies.items():
        numbers = store.numbers(name)
        first = list(dict.fromkeys(numbers))
        delivered = [set(receiver.log().numbers(name)) for receiver in received.values()]
        found[name] = Fate(
            sent=tally.sent,
            acked=tally.acked,
            lost=len(set(range(tally.sent)) - set(tally.failed) - set(numbers)),
            stored_twice=sum(count - 1 for count in Counter(numbers).values()),
            out_of_order=sum(here > after for here, after in pairwise(first)),
            undelivered=sum(len(set(numbers) - got) for got in delivered),
        )
    return found
