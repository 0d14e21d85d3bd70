"""A storm of clients through real sockets: all request topic lists at once, some read late with a small window.

Rule: every answer is checked (request id, number of topics) and none is stored, so that the storm needs little memory.
"""

import asyncio
import math
import socket
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ProtocolError, ServerError
from protocol.frames import HEAD_BYTES, HEADER_BYTES, FrameHead, read_head, read_sizes
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import CountingScanner
from proxy.cli.demo.broker import LOOPBACK

SLOW_RECEIVE_BYTES: Final = 4096
CONNECTS_AT_ONCE: Final = 64
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class StormPlan:
    """The size of a storm, and the share of its clients that read late."""

    connections: int
    requests: int
    topics: int
    slow_share: float
    late_seconds: float

    def slow(self, number: int) -> bool:
        """Return whether connection `number` reads late; late connections are spread evenly."""
        return math.floor((number + 1) * self.slow_share + 0.5) > math.floor(number * self.slow_share + 0.5)


@dataclass(slots=True)
class StormTally:
    """Counts of the results so far."""

    expected: int
    answered: int = 0
    wrong: int = 0
    lost: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    received_bytes: int = 0
    largest_answer_bytes: int = 0
    longest_wait_seconds: float = 0.0
    longest_quick_wait_seconds: float = 0.0

    @property
    def refused(self) -> int:
        """The number of requests answered with an error."""
        return self.refusals.total()


class Storm:
    """The clients of a plan, which share `namespaces` in turn."""

    def __init__(self, plan: StormPlan, namespaces: list[str], tls: ssl.SSLContext | None = None) -> None:
        self.plan = plan
        self.tally = StormTally(expected=plan.connections * plan.requests)
        self._namespaces = namespaces
        self._tls = tls
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._connecting = asyncio.Semaphore(CONNECTS_AT_ONCE)

    async def run(self, port: int, connect_seconds: float, seconds: float) -> None:
        """Connect all clients, then send the requests of all at once, and wait.

        The requests of a client without CONNECTED in time are lost, as are those without result after `seconds`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + connect_seconds
        try:
            clients = await asyncio.gather(*(self._connect(n, port, deadline) for n in range(self.plan.connections)))
            began = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                    for number, reader in enumerate(clients):
                        group.create_task(self._ask(number, reader))
            self.tally.seconds = loop.time() - began
        finally:
            for writer in self._writers.values():
                writer.transport.abort()

    async def _connect(self, number: int, port: int, deadline: float) -> asyncio.StreamReader | None:
        try:
            async with self._connecting, asyncio.timeout_at(deadline):
                # Made in its turn, and within the block: a client for which there is no descriptor is lost.
                sock = socket.socket()
                try:
                    sock.setblocking(False)
                    if self.plan.slow(number):
                        # Set before the connection is made: the TCP handshake fixes the window scale.
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_RECEIVE_BYTES)
                    await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, port))
                    name = None if self._tls is None else LOOPBACK
                    reader, writer = await asyncio.open_connection(sock=sock, ssl=self._tls, server_hostname=name)
                except BaseException:
                    sock.close()
                    raise
                self._writers[number] = writer
                writer.write(commands.connect_lookup("storm"))
                size, _ = read_sizes(await reader.readexactly(HEADER_BYTES), 0)
                command = commands.decode_command(await reader.readexactly(size - HEADER_BYTES))
                return reader if command.type == CommandType.CONNECTED else None
        except (OSError, EOFError, ProtocolError):
            return None

    async def _ask(self, number: int, reader: asyncio.StreamReader | None) -> None:
        """Send the requests of a client and count the answers; a late one begins to read after the plan's delay."""
        tally, asked = self.tally, set(range(1, self.plan.requests + 1))
        if reader is None or (writer := self._writers[number]).is_closing():
            tally.lost += len(asked)
            return
        loop, late = asyncio.get_running_loop(), self.plan.slow(number)
        began = loop.time()
        try:
            if late:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            for request_id in sorted(asked):
                command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
                command.getTopicsOfNamespace.request_id = request_id
                command.getTopicsOfNamespace.namespace = self._namespaces[number % len(self._namespaces)]
                writer.write(commands.frame(command))
            if late:
                await asyncio.sleep(self.plan.late_seconds)
                if not writer.is_closing():
                    writer.transport.resume_reading()  # type: ignore[attr-defined]
            while asked:
                asked.discard(await self._answer(asked, reader, writer))
                waited = loop.time() - began
                tally.longest_wait_seconds = max(tally.longest_wait_seconds, waited)
                if not late:
                    tally.longest_quick_wait_seconds = max(tally.longest_quick_wait_seconds, waited)
        except (OSError, EOFError, ProtocolError) as error:
            writer.transport.abort()
            if isinstance(error, ProtocolError):
                tally.wrong += len(asked)
                asked.clear()
        finally:
            tally.lost += len(asked)

    async def _answer(self, asked: set[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """Read frames up to the answer of a request, and return its id."""
        while True:
            first = await reader.readexactly(HEADER_BYTES)
            frame_bytes, _ = read_sizes(first, 0)
            first += await reader.readexactly(min(frame_bytes, HEAD_BYTES) - HEADER_BYTES)
            head = read_head(first)
            if head.command_type == CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE:
                is_right = await self._topics(head, first, reader) == self.plan.topics and head.request_id in asked
                self.tally.answered += is_right
                self.tally.wrong += not is_right
                return head.request_id or 0
            rest = await reader.readexactly(frame_bytes - len(first))
            command = commands.decode_command((first + rest)[HEADER_BYTES:])
            if command.type == CommandType.PING:
                writer.write(commands.PONG_FRAME)
            if command.type == CommandType.ERROR and command.error.request_id in asked:
                self.tally.refusals[f"{ServerError(command.error.error).name}: {command.error.message}"] += 1
                return int(command.error.request_id)

    async def _topics(self, head: FrameHead, first: bytes, reader: asyncio.StreamReader) -> int:
        """Read a list in chunks, never whole, and return the number of its topics."""
        scanner = CountingScanner(head.rest_bytes)
        scanner.feed(bytearray(first[head.rest_offset :]))
        left = head.frame_bytes - len(first)
        while left:
            piece = await reader.readexactly(min(left, _CHUNK_BYTES))
            self.tally.received_bytes += len(piece)
            left -= len(piece)
            scanner.feed(bytearray(piece))
        self.tally.largest_answer_bytes = max(self.tally.largest_answer_bytes, head.frame_bytes)
        return scanner.topic_count
