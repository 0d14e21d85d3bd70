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
    received_bytes: int = 0
    largest_answer_bytes: int = 0
    longest_wait_seconds: float = 0.0
    longest_quick_wait_seconds: float = 0.0

    @property
    def refused(self) -> int:
        """The number of requests answered with an error."""
        return self.refusals.total()


class StormClient:
    """A client of the storm: call `connect`, then `ask`."""

    def __init__(self, storm: "Storm", namespace: str, *, late: bool) -> None:
        self._plan = storm.plan
        self._tally = storm.tally
        self._namespace = namespace
        self._late = late
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        """Connect, and wait for CONNECTED; raises OSError or EOFError."""
        sock = socket.socket()
        try:
            sock.setblocking(False)
            if self._late:
                # Set before the connection is made: the TCP handshake fixes the window scale.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_RECEIVE_BYTES)
            await asyncio.get_running_loop().sock_connect(sock, address)
            name = None if tls is None else address[0]
            self._streams = reader, writer = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise
        writer.write(commands.connect_lookup("storm"))
        size, _ = read_sizes(await reader.readexactly(HEADER_BYTES), 0)
        command = commands.decode_command(await reader.readexactly(size - HEADER_BYTES))
        if command.type != CommandType.CONNECTED:
            raise ConnectionRefusedError(command.error.message)

    async def ask(self) -> None:
        """Send all requests at once, and count the answers; a late client begins to read after the plan's delay."""
        asked = set(range(1, self._plan.requests + 1))
        try:
            if self._streams is None or (writer := self._streams[1]).is_closing():
                return
            began = asyncio.get_running_loop().time()
            if self._late:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"".join(_topic_list_request(request_id, self._namespace) for request_id in sorted(asked)))
            if self._late:
                await asyncio.sleep(self._plan.late_seconds)
                if not writer.is_closing():
                    writer.transport.resume_reading()  # type: ignore[attr-defined]
            while asked:
                asked.discard(await self._taken(asked))
                self._waited(asyncio.get_running_loop().time() - began)
        except (OSError, EOFError):
            self.close()
        except ProtocolError:
            self._tally.wrong += len(asked)
            asked.clear()
            self.close()
        finally:
            self._tally.lost += len(asked)

    async def _taken(self, asked: set[int]) -> int:
        """Read frames up to the answer of a request, and return its id."""
        assert self._streams is not None
        reader, writer = self._streams
        while True:
            first = await reader.readexactly(HEADER_BYTES)
            frame_bytes, _ = read_sizes(first, 0)
            first += await reader.readexactly(min(frame_bytes, HEAD_BYTES) - HEADER_BYTES)
            head = read_head(first)
            if head.command_type == CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE:
                is_right = await self._is_whole(head, first, frame_bytes) and head.request_id in asked
                self._tally.answered += is_right
                self._tally.wrong += not is_right
                return head.request_id or 0
            rest = await reader.readexactly(frame_bytes - len(first))
            command = commands.decode_command((first + rest)[HEADER_BYTES:])
            if command.type == CommandType.PING:
                writer.write(commands.PONG_FRAME)
            if command.type == CommandType.ERROR and command.error.request_id in asked:
                self._tally.refusals[f"{ServerError(command.error.error).name}: {command.error.message}"] += 1
                return int(command.error.request_id)

    async def _is_whole(self, head: FrameHead, first: bytes, frame_bytes: int) -> bool:
        """Read a list in chunks, never whole, and return whether it has all topics."""
        assert self._streams is not None
        tally, left = self._tally, frame_bytes - len(first)
        scanner = CountingScanner(head.rest_bytes)
        scanner.feed(bytearray(first[head.rest_offset :]))
        while left:
            piece = await self._streams[0].readexactly(min(left, _CHUNK_BYTES))
            tally.received_bytes += len(piece)
            left -= len(piece)
            scanner.feed(bytearray(piece))
        tally.largest_answer_bytes = max(tally.largest_answer_bytes, frame_bytes)
        return scanner.topic_count == self._plan.topics

    def _waited(self, seconds: float) -> None:
        tally = self._tally
        tally.longest_wait_seconds = max(tally.longest_wait_seconds, seconds)
        if not self._late:
            tally.longest_quick_wait_seconds = max(tally.longest_quick_wait_seconds, seconds)

    def close(self) -> None:
        """Abort the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()


class Storm:
    """The clients of a plan: call `connect`, then `ask`, then `close`; the clients share `namespaces` in turn."""

    def __init__(self, plan: StormPlan, namespaces: list[str], tls: ssl.SSLContext | None = None) -> None:
        self.plan = plan
        self.tally = StormTally(expected=plan.connections * plan.requests)
        self._tls = tls
        numbers = range(plan.connections)
        self._clients = [StormClient(self, namespaces[n % len(namespaces)], late=plan.slow(n)) for n in numbers]

    async def connect(self, host: str, port: int, seconds: float) -> None:
        """Connect all clients; the requests of a client without CONNECTED after `seconds` count as lost."""
        places = asyncio.Semaphore(CONNECTS_AT_ONCE)
        deadline = asyncio.get_running_loop().time() + seconds

        async def connect(client: StormClient) -> None:
            try:
                async with places, asyncio.timeout_at(deadline):
                    await client.connect((host, port), self._tls)
            except (OSError, EOFError, ProtocolError):
                client.close()

        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(connect(client))

    async def ask(self, seconds: float) -> None:
        """Send the requests of all clients at once, and wait; requests without result after `seconds` are lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for client in self._clients:
                    group.create_task(client.ask())

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.close()


def _topic_list_request(request_id: int, namespace: str) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
    command.getTopicsOfNamespace.request_id = request_id
    command.getTopicsOfNamespace.namespace = namespace
    return commands.frame(command)
