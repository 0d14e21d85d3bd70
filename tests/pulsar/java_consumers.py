"""Owns Java clients: their class path, the one process of each release that plays all of them, what they write.

Obeys one rule: without a JDK or Maven the error is one line, never a silent skip. The program is java/Clients.java; the
files that its roles write are the only thing that a test knows of it.
"""

import atexit
import hashlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tests.pulsar.process import ChildProcess, Lines, ProcessFailedError
from tests.pulsar.standalone import BROKER_POM, CACHE, MissingToolError, class_path, missing_for_maven
from tests.support.jvm import QUICK

_HERE: Final = Path(__file__).parent
_PROGRAM: Final = _HERE / "java" / "Clients.java"
_LOG4J: Final = _HERE / "broker" / "log4j2.xml"
_STOP_SECONDS: Final = 120.0


class Client(Enum):
    """The clients at hand, each with the pom.xml that resolves it."""

    NEW = BROKER_POM  # the broker's class path holds the client of its own version
    OLD = _HERE / "java" / "pom.xml"


_running: dict[Client, ChildProcess] = {}


def prepare() -> None:
    """Resolve the class paths, and compile the clients; raises MissingToolError."""
    for client in Client:
        java_program(client, _PROGRAM)


def java_program(client: Client, program: Path) -> list[str]:
    """Return the command that runs a program of one file with a client; raises MissingToolError."""
    if missing := missing_for_maven():
        raise MissingToolError(f"java clients need a jdk and maven: {missing}")
    return compiled_command(str(shutil.which("java")), class_path(client.value), program)


def compiled_command(java: str, jars: str, program: Path) -> list[str]:
    """Return the command that runs a program of one file, compiled once by the JDK of `java`; raises MissingToolError.

    Compiled at each start it would take more processor time than all that most of these programs do.
    """
    digest = hashlib.sha256(program.read_bytes())
    digest.update(f"{java} {jars}".encode())
    classes = CACHE / f"java-{digest.hexdigest()[:16]}"
    if not classes.is_dir():
        # Under another name until it is whole: a second run may look at the same time.
        fresh = classes.with_suffix(f".{os.getpid()}")
        javac = str(Path(java).resolve().with_name("javac"))
        done = subprocess.run([javac, "-d", str(fresh), "-cp", jars, str(program)], capture_output=True, text=True)
        if done.returncode:
            raise MissingToolError(f"javac {program.name}: {done.stderr.strip()}")
        with suppress(OSError):
            fresh.rename(classes)
    path = os.pathsep.join((str(classes), jars))
    return [java, *QUICK, "-Xmx256m", f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", path, program.stem]


class Role:
    """What a client of the program does from now on, until it is stopped; `process` plays others beside it."""

    def __init__(self, directory: Path, client: Client, name: str, kind: str, *words: object) -> None:
        if client not in _running:
            log = directory / f"java-{client.name.lower()}.log"
            _running[client] = ChildProcess("java clients", java_program(client, _PROGRAM), log, is_told=True)
            atexit.register(_running[client].stop, 10.0)
        self.process = _running[client]
        self.process.ensure_running()
        self._log_begins = self.process.log.stat().st_size
        self._file = directory / f"{name}-{os.urandom(3).hex()}.events"
        self._lines = Lines(self._file)
        self._over = False
        self.process.tell("\t".join(map(str, (kind, self._file, *words))))

    @property
    def said(self) -> str:
        """Return what the program has logged since the role began."""
        return self.process.log.read_bytes()[self._log_begins :].decode(errors="replace")

    def news(self) -> Iterator[list[str]]:
        """Yield the words of each line that was written since the last look."""
        for line in self._lines.news():
            if line == "over":
                self._over = True
            else:
                yield line.split(" ")

    def look(self) -> None:
        """Take what was written since the last look."""
        raise NotImplementedError

    def is_over(self) -> bool:
        self.look()
        return self._over

    def ensure_going(self) -> None:
        """Raise ProcessFailedError if the role has ended by itself."""
        if self.is_over():
            raise ProcessFailedError(f"{self._file.stem} ended before it was told to\n{self.process.tail()}")

    def stop(self) -> None:
        """End it, when what it has begun is done; raises ProcessFailedError if it had ended by itself."""
        if not self.is_over():
            self.process.tell(f"stop\t{self._file}")
            self.process.wait_ready(self.is_over, _STOP_SECONDS)


class Event(NamedTuple):
    """Say what one consumer saw: subscribed, added, removed or received; `millis` is its wall clock."""

    consumer: int
    event: str
    topic: str
    millis: int


class JavaConsumers(Role):
    """Pattern consumers, and what they saw."""

    def __init__(self, directory: Path, client: Client, url: str, pattern: str, poll_seconds: int, count: int) -> None:
        self._events: list[Event] = []
        super().__init__(directory, client, f"java-{client.name.lower()}", "watch", url, pattern, count, poll_seconds)

    def look(self) -> None:
        for consumer, event, topic, millis in self.news():
            self._events.append(Event(int(consumer), event, topic, int(millis)))

    def events(self) -> list[Event]:
        """Return all events so far."""
        self.look()
        return self._events

    def topics(self, consumer: int = 0) -> set[str]:
        """Return the topics that a consumer reads now."""
        last = {
            seen.topic: seen.event for seen in self.events() if seen.consumer == consumer and seen.event != "received"
        }
        return {topic for topic, event in last.items() if event == "added"}

    def received(self, consumer: int = 0) -> list[str]:
        """List the topics of all messages that a consumer got."""
        return [seen.topic for seen in self.events() if (seen.consumer, seen.event) == (consumer, "received")]

    def count(self, event: str, topic: str) -> int:
        """Count the consumers that saw `event` of `topic`."""
        return len({seen.consumer for seen in self.events() if (seen.event, seen.topic) == (event, topic)})

    def deliveries(self) -> Counter[tuple[int, str]]:
        """Count the messages that each consumer got from each topic."""
        return Counter((seen.consumer, seen.topic) for seen in self.events() if seen.event == "received")

    def wait_for_topics(self, topics: set[str], timeout: float) -> None:
        """Wait until the first consumer reads exactly `topics`; raises ProcessFailedError."""
        self.process.wait_ready(lambda: self.topics() == topics, timeout)


@contextmanager
def run_java_consumers(
    directory: Path, client: Client, service_url: str, pattern: str, poll_seconds: int, count: int = 1
) -> Iterator[JavaConsumers]:
    """Run `count` pattern consumers until the block ends; raises MissingToolError, ProcessFailedError."""
    made = JavaConsumers(directory, client, service_url, pattern, poll_seconds, count)
    try:
        yield made
        made.ensure_going()
    finally:
        made.stop()
