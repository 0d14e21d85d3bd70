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

from protocol.commands import request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import AsyncClient, Closed, connect_frame, lookup_frame, topics_frame
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

    failed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    unanswered: int = 0
    wrong: list[str] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)

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


@dataclass(slots=True)
class _Asker:
    """One client: a connection at a time, a request at a time."""

    number: int
    port: int
    namespace: str
    topics: frozenset[str]
    asked: Asked
    seconds: float
    client: AsyncClient | None = None

    async def run(self) -> None:
        """Ask until cancelled."""
        lookups = itertools.cycle(sorted(self.topics))
        try:
            while True:
                for topic in (next(lookups), ""):
                    await self._ask(topic)
                    await asyncio.sleep(_PAUSE_SECONDS * random.random())
        finally:
            self._drop()

    async def _ask(self, topic: str) -> None:
        """Look a topic up, or ask for the list; try until there is an answer, or the time of the operation is over."""
        deadline, pause = time.monotonic() + self.seconds, _FIRST_PAUSE_SECONDS
        while not await self._attempt(topic):
            if time.monotonic() + pause > deadline:
                self.asked.failed += 1
                return
            await asyncio.sleep(pause * (1 - 0.1 * random.random()))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self.asked.last[self.number] = time.monotonic()

    async def _attempt(self, topic: str) -> bool:
        try:
            async with asyncio.timeout(self.seconds):
                return await self._exchange(topic)
        except ConnectionRefusedError:
            self.asked.refused += 1
        except TimeoutError:
            self.asked.unanswered += 1
        except (Closed, OSError):
            # It asks again over a new connection.
            pass
        self._drop()
        return False

    async def _exchange(self, topic: str) -> bool:
        client = self.client or await self._connected()
        request_id = client.next_id()
        await client.send(lookup_frame(request_id, topic) if topic else topics_frame(request_id, self.namespace))
        answer = await client.answer(pong=True)
        if request_id_of(answer) != request_id:
            self.asked.wrong.append(f"request {request_id} was answered by {answer}")
            raise Closed
        found, listed = answer.lookupTopicResponse, answer.getTopicsOfNamespaceResponse
        failed = found.response == pb.CommandLookupTopicResponse.Failed and answer.HasField("lookupTopicResponse")
        if failed or answer.type == pb.BaseCommand.ERROR:
            code = found.error if failed else answer.error.error
            self.asked.errors[f"{'lookup' if topic else 'list'}: {ServerError(code).name}"] += 1
            return False
        right = answer.HasField("lookupTopicResponse" if topic else "getTopicsOfNamespaceResponse")
        if not right or (not topic and frozenset(listed.topics) != self.topics):
            self.asked.wrong.append(f"{topic or self.namespace} was answered by {str(answer)[:200]}")
        return right

    async def _connected(self) -> AsyncClient:
        client = self.client = await AsyncClient.open(self.port)
        # The time of the operation ends what waits.
        client.seconds = 2 * self.seconds
        await client.send(connect_frame())
        answer = await client.answer(pong=True)
        if answer.type != pb.BaseCommand.CONNECTED:
            self.asked.errors[f"connect: {ServerError(answer.error.error).name}"] += 1
            raise Closed
        return client

    def _drop(self) -> None:
        if self.client is not None:
            self.client.reset()
            self.client = None


@contextmanager
def askers(address: tuple[str, int], namespace: str, topics: frozenset[str], count: int) -> Iterator[Asked]:
    """Run a storm of `count` clients in a thread until the block ends; `topics` is what each list must be."""
    asked, seconds = Asked(), patient(OPERATION_SECONDS)
    loop = asyncio.new_event_loop()
    failures: list[BaseException] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(_Asker(number, address[1], namespace, topics, asked, seconds).run())

    task = loop.create_task(run())

    def work() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            failures.append(error)
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield asked
    finally:
        # The loop may have ended by itself.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
    assert not failures, failures
