"""Owns Java pattern consumers as one process: their class path, their start, the events that they write.

Obeys one rule: without a JDK or Maven the error is one line, never a silent skip. The program is
java/PatternConsumers.java; its events are the only thing that a test knows of it.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tests.pulsar.process import ChildProcess
from tests.pulsar.standalone import BROKER_POM, CACHE, MissingToolError, class_path, missing_for_maven
from tests.support.jvm import QUICK

_HERE: Final = Path(__file__).parent
_PROGRAM: Final = _HERE / "java" / "PatternConsumers.java"
_LOG4J: Final = _HERE / "broker" / "log4j2.xml"
_STOP_SECONDS: Final = 20.0


class Client(Enum):
    """The clients at hand, each with the pom.xml that resolves it."""

    NEW = BROKER_POM  # the broker's class path holds the client of its own version
    OLD = _HERE / "java" / "pom.xml"


@dataclass(frozen=True, slots=True)
class Event:
    """Say what one consumer saw: subscribed, added, removed or received; `millis` is its wall clock."""

    consumer: int
    event: str
    topic: str
    millis: int


class JavaConsumers:
    """Read what the consumers of a running process wrote to `file`."""

    def __init__(self, process: ChildProcess, file: Path) -> None:
        self.process = process
        self._file = file

    def events(self) -> Iterator[Event]:
        """Yield all events so far."""
        text = self._file.read_text() if self._file.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            yield Event(**json.loads(line))

    def topics(self, consumer: int = 0) -> set[str]:
        """Return the topics that a consumer reads now."""
        found: set[str] = set()
        for event in self.events():
            if event.consumer == consumer and event.event == "added":
                found.add(event.topic)
            elif event.consumer == consumer and event.event == "removed":
                found.remove(event.topic)
        return found

    def received(self, consumer: int = 0) -> list[str]:
        """List the topics of all messages that a consumer got."""
        return [event.topic for event in self.events() if (event.consumer, event.event) == (consumer, "received")]

    def count(self, event: str, topic: str) -> int:
        """Count the consumers that saw `event` of `topic`."""
        return len({seen.consumer for seen in self.events() if (seen.event, seen.topic) == (event, topic)})

    def deliveries(self) -> Counter[tuple[int, str]]:
        """Count the messages that each consumer got from each topic."""
        return Counter((event.consumer, event.topic) for event in self.events() if event.event == "received")

    def wait_for_topics(self, topics: set[str], timeout: float, consumer: int = 0) -> None:
        """Wait until a consumer reads exactly `topics`; raises ProcessFailedError."""
        self.process.wait_ready(lambda: self.topics(consumer) == topics, timeout)


def prepare() -> None:
    """Resolve the class paths, and compile the consumers; raises MissingToolError."""
    for client in Client:
        java_program(client, _PROGRAM)


def java_program(client: Client, program: Path) -> list[str]:
    """Return the command that runs a program of one file with a client; raises MissingToolError."""
    missing = missing_for_maven() or (None if shutil.which("javac") else "javac not found")
    if missing:
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


@contextmanager
def run_java_consumers(
    directory: Path, client: Client, service_url: str, pattern: str, poll_seconds: int, count: int = 1
) -> Iterator[JavaConsumers]:
    """Run `count` pattern consumers until the block ends; raises MissingToolError, ProcessFailedError."""
    name = f"java-{client.name.lower()}-{os.urandom(3).hex()}"
    events = directory / f"{name}.events"
    command = [*java_program(client, _PROGRAM), service_url, pattern, str(count), str(poll_seconds), str(events)]
    process = ChildProcess(name, command, directory / f"{name}.log")
    try:
        yield JavaConsumers(process, events)
        process.ensure_running()
    finally:
        process.stop(_STOP_SECONDS)
