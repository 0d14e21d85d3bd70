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
from typing import Final, cast

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ProtocolError, ServerError
from protocol.frames import Frame, FrameHead
from protocol.framing import BodyEnd, FrameAnnounced, FrameDecoder, Signal
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import CountingScanner

SLOW_RECEIVE_BYTES: Final = 4096
CONNECTS_AT_ONCE: Final = 64
_READ_BYTES: Final = 4096
_CHUNK_BYTES: Final = 64 * 1024
_ANSWERS: Final = frozenset({CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE})


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

    @property
    def settled(self) -> bool:
        """Whether every request has a result."""
        return self.answered + self.wrong + self.lost + self.refused >= self.expected


class _CountingSink:
    """Counts the topics of a list without storing it.

    The list is scanned in chunks: a client with a small window receives about 2 KiB at a time, and a scan of each piece
    would make the storm itself the bottleneck.
    """

    def __init__(self, head: FrameHead) -> None:
        self.scanner = CountingScanner(head.rest_bytes)
        self._chunk = bytearray(min(head.rest_bytes, _CHUNK_BYTES))
        self._view = memoryview(self._chunk)
        self._filled = 0
        self._left = head.rest_bytes

    def writable(self) -> memoryview:
        return self._view[self._filled :]

    def advance(self, count: int) -> None:
        self._filled += count
        self._left -= count
        if self._filled == len(self._chunk):
            self.scanner.feed(self._chunk)
            self._filled = 0
        elif not self._left:
            self.scanner.feed(self._chunk[: self._filled])


class StormClient(asyncio.BufferedProtocol):
    """A connection of the storm: `connected` completes when CONNECTED arrives; then call `ask`."""

    def __init__(
        self, plan: StormPlan, tally: StormTally, heads: memoryview, namespace: str, on_settled: asyncio.Event
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._tally = tally
        self._heads = heads
        self._namespace = namespace
        self._on_settled = on_settled
        self._decoder = FrameDecoder(announce_types=_ANSWERS)
        self._asked: dict[int, float] = {}
        self._late = False
        self._sink: _CountingSink | None = None
        self._transport: asyncio.Transport | None = None
        self.connected: asyncio.Future[None] = self._loop.create_future()

    def ask(self, *, late: bool) -> None:
        """Send all requests at once; a late client begins to read after the plan's delay."""
        transport = self._transport
        self._late = late
        now = self._loop.time()
        self._asked = dict.fromkeys(range(1, self._plan.requests + 1), now)
        if transport is None or transport.is_closing():
            self._lose()
            return
        if late:
            transport.pause_reading()
            self._loop.call_later(self._plan.late_seconds, self._begin_to_read)
        transport.write(b"".join(_topic_list_request(request_id, self._namespace) for request_id in self._asked))

    def close(self) -> None:
        """Abort the connection; unanswered requests count as lost."""
        if self._transport is not None:
            self._transport.abort()
        self._lose()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(commands.connect_lookup("storm"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.connected.done():
            self.connected.set_exception(exc or ConnectionResetError("closed before CONNECTED"))
        self._lose()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.writable() if self._decoder.diverting else self._heads

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio when bytes arrive; a protocol error counts all open requests as wrong."""
        self._tally.received_bytes += nbytes
        try:
            if self._decoder.diverting:
                self._decoder.advance(nbytes)
            else:
                self._decoder.receive_data(self._heads[:nbytes])
            while not isinstance(event := self._decoder.next_event(), Signal):
                self._take(event)
        except ProtocolError:
            self._tally.wrong += len(self._asked)
            self._asked.clear()
            self.close()

    def _take(self, event: Frame | FrameAnnounced | BodyEnd) -> None:
        if isinstance(event, FrameAnnounced):
            self._sink = _CountingSink(event.head)
            self._decoder.divert(self._sink)
        elif isinstance(event, BodyEnd):
            self._on_list(event.head)
        else:
            self._on_command(commands.decode_command(event.command))

    def _on_list(self, head: FrameHead) -> None:
        sink, self._sink = self._sink, None
        assert sink is not None
        if self._settle(head.request_id) and sink.scanner.topic_count == self._plan.topics:
            self._tally.answered += 1
            self._tally.largest_answer_bytes = max(self._tally.largest_answer_bytes, head.frame_bytes)
        else:
            self._tally.wrong += 1
        self._check_settled()

    def _on_command(self, command: pb.BaseCommand) -> None:
        if command.type == CommandType.CONNECTED and not self.connected.done():
            self.connected.set_result(None)
        elif command.type == CommandType.PING and self._transport is not None:
            self._transport.write(commands.PONG_FRAME)
        elif command.type == CommandType.ERROR:
            if not self.connected.done():
                self.connected.set_exception(ConnectionRefusedError(command.error.message))
            elif self._settle(command.error.request_id):
                self._tally.refusals[f"{ServerError(command.error.error).name}: {command.error.message}"] += 1
            self._check_settled()

    def _settle(self, request_id: int | None) -> bool:
        asked = None if request_id is None else self._asked.pop(request_id, None)
        if asked is None:
            return False
        waited = self._loop.time() - asked
        self._tally.longest_wait_seconds = max(self._tally.longest_wait_seconds, waited)
        if not self._late:
            self._tally.longest_quick_wait_seconds = max(self._tally.longest_quick_wait_seconds, waited)
        return True

    def _lose(self) -> None:
        self._tally.lost += len(self._asked)
        self._asked.clear()
        self._check_settled()

    def _check_settled(self) -> None:
        if self._tally.settled:
            self._on_settled.set()

    def _begin_to_read(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


class Storm:
    """The clients of a plan: call `connect`, then `ask`, then `close`; the clients share `namespaces` in turn."""

    def __init__(self, plan: StormPlan, namespaces: list[str], tls: ssl.SSLContext | None = None) -> None:
        self.plan = plan
        self._tls = tls
        self.tally = StormTally(expected=plan.connections * plan.requests)
        self._namespaces = namespaces
        # All clients share a buffer for frame heads: a read is processed before the next read begins.
        self._heads = memoryview(bytearray(_READ_BYTES))
        self._settled = asyncio.Event()
        self._clients: list[StormClient] = []

    async def connect(self, host: str, port: int, seconds: float) -> None:
        """Connect all clients; the requests of a client without CONNECTED after `seconds` count as lost."""
        places = asyncio.Semaphore(CONNECTS_AT_ONCE)
        deadline = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(self.plan.connections):
                namespace = self._namespaces[number % len(self._namespaces)]
                client = StormClient(self.plan, self.tally, self._heads, namespace, self._settled)
                self._clients.append(client)
                group.create_task(self._connect(client, (host, port), places, deadline, slow=self.plan.slow(number)))

    async def _connect(
        self, client: StormClient, address: tuple[str, int], places: asyncio.Semaphore, deadline: float, *, slow: bool
    ) -> None:
        with suppress(OSError, TimeoutError):
            async with places, asyncio.timeout_at(deadline):
                await _open(client, address, self._tls, slow=slow)
                await client.connected

    async def ask(self, seconds: float) -> None:
        """Send the requests of all clients at once, and wait; requests without result after `seconds` are lost."""
        for number, client in enumerate(self._clients):
            client.ask(late=self.plan.slow(number))
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            self.close()

    def close(self) -> None:
        """Close every connection; unanswered requests count as lost."""
        for client in self._clients:
            client.close()


async def _open(client: StormClient, address: tuple[str, int], tls: ssl.SSLContext | None, *, slow: bool) -> None:
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    try:
        sock.setblocking(False)
        if slow:
            # Set before the connection is made: the TCP handshake fixes the window scale.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_RECEIVE_BYTES)
        await loop.sock_connect(sock, address)
        name = None if tls is None else address[0]
        await loop.create_connection(lambda: client, sock=sock, ssl=tls, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def _topic_list_request(request_id: int, namespace: str) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
    command.getTopicsOfNamespace.request_id = request_id
    command.getTopicsOfNamespace.namespace = namespace
    return commands.frame(command)
