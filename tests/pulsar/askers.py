"""Own a storm of clients that ask without end, lookups and topic lists in turn, and try again as real clients do.

Rule: an attempt ends with an answer, an error, a closed connection, or the client's own patience; each is counted. A
request fails when no attempt within its time was answered. Pauses between attempts double and are jittered, as those of
Pulsar's clients (`Backoff`: from 0.1 s, a tenth shorter at random; at most 60 s there, 5 s here).
"""

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from protocol.commands import PONG_FRAME, decode_command, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import connect_frame, lookup_frame, topics_frame
from tests.support.patience import patient

# The operation time-out of Pulsar's clients, and of one attempt (`lookupTimeout` is the same time).
OPERATION_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
# Errors after which Pulsar's clients ask again.
_REPEATED: Final = frozenset({"ServiceNotReady", "TooManyRequests", "MetadataError"})


@dataclass(slots=True)
class Asked:
    """What became of all attempts and requests so far; `last` is when each client had its last answer."""

    answered: int = 0
    failed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    closed: int = 0
    refused: int = 0
    unanswered: int = 0
    wrong: list[str] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)
    longest_seconds: float = 0.0

    def broken(self, *, failures: bool = False) -> list[str]:
        """Return what no client may see of a proxy, whatever becomes of brokers, one line each.

        `failures`: nor may a request fail that was tried again for as long as clients try.
        """
        found = [f"{self.unanswered} attempts with neither an answer nor an end"] if self.unanswered else []
        found += [f"{self.failed} requests failed"] if failures and self.failed else []
        return found + [error for error in self.errors if error.rpartition(" ")[2] not in _REPEATED]

    def resumed(self, since: float) -> int:
        """Count the clients that have had an answer since then."""
        return sum(at > since for at in self.last.values())


class _Ended(Exception):
    """The connection of an attempt has ended."""


class _Asker:
    """One client: a connection at a time, a request at a time."""

    def __init__(self, number: int, address: tuple[str, int], namespace: str, topics: frozenset[str], asked: Asked,
                 operation_seconds: float) -> None:  # fmt: skip
        self._number = number
        self._address = address
        self._namespace = namespace
        self._topics = topics
        self._lookups = itertools.cycle(sorted(topics))
        self._ids = itertools.count(1)
        self._asked = asked
        self._operation_seconds = operation_seconds
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            for turn in itertools.count():
                await self._ask(lists=turn % 2 == 1)
                await asyncio.sleep(_PAUSE_SECONDS * random.random())
        finally:
            self._drop()

    async def _ask(self, *, lists: bool) -> None:
        """Try until there is an answer, or the time of the operation is over."""
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        deadline = began + self._operation_seconds
        while True:
            if await self._attempt(lists=lists):
                now = time.monotonic()
                self._asked.answered += 1
                self._asked.last[self._number] = now
                self._asked.longest_seconds = max(self._asked.longest_seconds, now - began)
                return
            if time.monotonic() + pause > deadline:
                self._asked.failed += 1
                return
            await asyncio.sleep(pause * (1 - 0.1 * random.random()))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _attempt(self, *, lists: bool) -> bool:
        try:
            async with asyncio.timeout(self._operation_seconds):
                return await self._exchange(lists=lists)
        except ConnectionRefusedError:
            self._asked.refused += 1
        except (OSError, _Ended, asyncio.IncompleteReadError) as error:
            # TimeoutError is an OSError.
            if isinstance(error, TimeoutError):
                self._asked.unanswered += 1
            else:
                self._asked.closed += 1
        self._drop()
        return False

    async def _exchange(self, *, lists: bool) -> bool:
        reader, writer = self._streams or await self._connected()
        request_id = next(self._ids)
        topic = next(self._lookups)
        writer.write(topics_frame(request_id, self._namespace) if lists else lookup_frame(request_id, topic))
        answer = await self._command(reader, writer)
        if request_id_of(answer) != request_id:
            self._asked.wrong.append(f"request {request_id} was answered by {answer}")
            raise _Ended
        return self._judged(answer, lists=lists)

    def _judged(self, answer: pb.BaseCommand, *, lists: bool) -> bool:
        """Return whether a command is the answer; count it if not."""
        if lists and answer.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE:
            got = frozenset(answer.getTopicsOfNamespaceResponse.topics)
            if got != self._topics:
                self._asked.wrong.append(f"a list of {len(got)} topics, expected {len(self._topics)}")
            return True
        if not lists and answer.type == pb.BaseCommand.LOOKUP_RESPONSE:
            found = answer.lookupTopicResponse
            if found.response != pb.CommandLookupTopicResponse.Failed:
                return True
            self._asked.errors[f"lookup: {ServerError(found.error).name}"] += 1
            return False
        if answer.type == pb.BaseCommand.ERROR:
            self._asked.errors[f"{'list' if lists else 'lookup'}: {ServerError(answer.error.error).name}"] += 1
            return False
        self._asked.wrong.append(f"an answer of type {pb.BaseCommand.Type.Name(answer.type)}")
        return False

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = self._streams = await asyncio.open_connection(*self._address, limit=1 << 20)
        writer.write(connect_frame())
        answer = await self._command(reader, writer)
        if answer.type != pb.BaseCommand.CONNECTED:
            self._asked.errors[f"connect: {ServerError(answer.error.error).name}"] += 1
            raise _Ended
        return reader, writer

    async def _command(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> pb.BaseCommand:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            command = decode_command((await reader.readexactly(size))[4:])
            if command.type != pb.BaseCommand.PING:
                return command
            writer.write(PONG_FRAME)

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


@contextmanager
def askers(address: tuple[str, int], namespace: str, topics: frozenset[str], count: int) -> Iterator[Asked]:
    """Run a storm of `count` clients in a thread until the block ends; `topics` is what each list must be."""
    asked, seconds = Asked(), patient(OPERATION_SECONDS)
    loop = asyncio.new_event_loop()
    failures: list[BaseException] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(_Asker(number, address, namespace, topics, asked, seconds).run())

    task = loop.create_task(run())

    def work() -> None:
        with suppress(asyncio.CancelledError):
            try:
                loop.run_until_complete(task)
            except Exception as error:
                failures.append(error)
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield asked
    finally:
        if thread.is_alive():
            # The loop may have ended since the look.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
    assert not failures, failures
