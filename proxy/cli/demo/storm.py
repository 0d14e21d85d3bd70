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
from protocol.frames import HEAD_BYTES, HEADER_BYTES, read_head, read_sizes
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

    @property
    def slow_connections(self) -> int:
        """The number of connections that read late."""
        return round(self.connections * self.slow_share)

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
        self._storm = storm
        self._namespace = namespace
        self._late = late
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

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
            reader, writer = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise
        self._reader, self._writer = reader, writer
        writer.write(commands.connect_lookup("storm"))
        size, _ = read_sizes(await reader.readexactly(HEADER_BYTES), 0)
        command = commands.decode_command(await reader.readexactly(size - HEADER_BYTES))
        if command.type != CommandType.CONNECTED:
            raise ConnectionRefusedError(command.error.message)

    async def ask(self) -> None:
        """Send all requests at once, and count the answers; a late client begins to read after the plan's delay."""
        plan, tally, reader, writer = self._storm.plan, self._storm.tally, self._reader, self._writer
        asked = set(range(1, plan.requests + 1))
        began = asyncio.get_running_loop().time()
        try:
            if reader is None or writer is None or writer.is_closing():
                return
            if self._late:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"".join(_topic_list_request(request_id, self._namespace) for request_id in sorted(asked)))
            if self._late:
                await asyncio.sleep(plan.late_seconds)
                if not writer.is_closing():
                    writer.transport.resume_reading()  # type: ignore[attr-defined]
            while asked:
                await self._take(reader, writer, asked, began)
        except (OSError, EOFError):
            self.close()
        except ProtocolError:
            tally.wrong += len(asked)
            asked.clear()
            self.close()
        finally:
            tally.lost += len(asked)

    async def _take(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: set[int], began: float
    ) -> None:
        """Read a frame; the body of a list is counted in chunks and never whole."""
        plan, tally = self._storm.plan, self._storm.tally
        first = await reader.readexactly(HEADER_BYTES)
        frame_bytes, _ = read_sizes(first, 0)
        first += await reader.readexactly(min(frame_bytes, HEAD_BYTES) - HEADER_BYTES)
        head = read_head(first)
        if head.command_type == CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE:
            scanner = CountingScanner(head.rest_bytes)
            scanner.feed(bytearray(first[head.rest_offset :]))
            left = frame_bytes - len(first)
            while left:
                piece = await reader.readexactly(min(left, _CHUNK_BYTES))
                tally.received_bytes += len(piece)
                left -= len(piece)
                scanner.feed(bytearray(piece))
            if head.request_id in asked and scanner.topic_count == plan.topics:
                tally.answered += 1
                tally.largest_answer_bytes = max(tally.largest_answer_bytes, frame_bytes)
            else:
                tally.wrong += 1
            request_id = head.request_id
        else:
            rest = await reader.readexactly(frame_bytes - len(first))
            command = commands.decode_command((first + rest)[HEADER_BYTES:])
            request_id = command.error.request_id
            if command.type == CommandType.PING:
                writer.write(commands.PONG_FRAME)
            if command.type != CommandType.ERROR or request_id not in asked:
                return
            tally.refusals[f"{ServerError(command.error.error).name}: {command.error.message}"] += 1
        if request_id is not None:
            asked.discard(request_id)
        waited = asyncio.get_running_loop().time() - began
        tally.longest_wait_seconds = max(tally.longest_wait_seconds, waited)
        if not self._late:
            tally.longest_quick_wait_seconds = max(tally.longest_quick_wait_seconds, waited)

    def close(self) -> None:
        """Abort the connection."""
        if self._writer is not None:
            self._writer.transport.abort()


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
