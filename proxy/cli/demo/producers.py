"""Producers, and a broker that stores their messages in a bounded memory: for `pulsar-proxy demo --overload`.

The broker's memory is a number: it grows by what arrives, and shrinks as if consumers read. Consumers take half of what
arrives until memory is short for the first time, and have a fixed rate from then on: a machine that is too busy for the
producers' rate fills the memory all the same. The broker says so over HTTP, as a real one does. A producer waits for
receipts as Pulsar's clients do: a few messages are under way at most.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ProtocolError
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.tasks import TaskScope

MESSAGE_BYTES: Final = 8192
PRODUCER_BYTES_PER_SECOND: Final = 200e3
MOST_BYTES_PER_SECOND: Final = 12e6
# Messages of a producer that no receipt has come for.
MOST_PENDING: Final = 16
# The memory in use when the storm begins, as a part of the limit.
FILLED_AT_FIRST: Final = 0.6
# So many times its seconds a storm may take, where a busy machine sends less than the plan says.
SLOW_MACHINE: Final = 3
_READ_BYTES: Final = 64 * 1024
_TOPIC: Final = "persistent://demo/overload/t-{}"


@dataclass(frozen=True, slots=True)
class OverloadPlan:
    """A storm: producers and its least seconds; half of the bytes that they send leaves the broker.

    `short_at` is the part of its memory from which the broker is short of memory.
    """

    producers: int
    seconds: float
    short_at: float = 0.85

    @property
    def most_seconds(self) -> float:
        """The longest storm: one that nobody was held in and released ends then."""
        return SLOW_MACHINE * self.seconds

    @property
    def bytes_per_second(self) -> float:
        """The bytes a second of all producers: few of them leave a busy machine time to send as much."""
        return min(MOST_BYTES_PER_SECOND, self.producers * PRODUCER_BYTES_PER_SECOND)

    @property
    def drained_per_second(self) -> float:
        """The bytes a second that consumers take."""
        return self.bytes_per_second / 2

    @property
    def limit_bytes(self) -> int:
        """The broker's memory: the storm, not slowed down, would fill much more."""
        return int(self.drained_per_second * self.seconds * 1.28)


@dataclass(slots=True)
class OverloadTally:
    """The counts of a storm."""

    sent: int = 0
    arrived: int = 0
    out_of_order: int = 0
    connections_lost: int = 0
    # Producers were held, and all of them have been released.
    is_released: bool = False


class StoringBroker:
    """A broker for producers only, and its web service; `stored_bytes` is its memory now, `most_bytes` at most."""

    def __init__(self, plan: OverloadPlan, tally: OverloadTally) -> None:
        self._plan = plan
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._scope = TaskScope(self._crashed)
        self._servers: list[asyncio.Server] = []
        self._stored = FILLED_AT_FIRST * plan.limit_bytes
        # None until memory was short for the first time.
        self._drained_at: float | None = None
        self._next: dict[tuple[str, int], int] = {}
        self.most_bytes = 0.0
        self.crash: BaseException | None = None

    async def start(self, host: str) -> tuple[int, int]:
        """Listen on free ports; return that for clients and that of the web service."""
        self._servers = [
            await asyncio.start_server(self._accepted, host, 0),
            await asyncio.start_server(self._asked, host, 0),
        ]
        first, second = (int(server.sockets[0].getsockname()[1]) for server in self._servers)
        return first, second

    async def stop(self) -> None:
        """Close everything."""
        for server in self._servers:
            server.close()
        self._scope.cancel()
        await self._scope.emptied()

    @property
    def stored_bytes(self) -> float:
        """The memory in use now."""
        if self._drained_at is not None:
            now = self._loop.time()
            taken = (now - self._drained_at) * self._plan.drained_per_second
            self._stored, self._drained_at = max(0.0, self._stored - taken), now
        return self._stored

    def _store(self, count: int) -> None:
        self._stored = self.stored_bytes + (count if self._drained_at is not None else count / 2)
        self.most_bytes = max(self.most_bytes, self._stored)
        if self._drained_at is None and self._stored >= self._plan.short_at * self._plan.limit_bytes:
            self._drained_at = self._loop.time()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._scope.start(self._serve(reader, writer))

    def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._scope.start(self._tell(reader, writer))

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer any question with the statistics of memory."""
        try:
            await reader.readuntil(b"\r\n\r\n")
            used = {"jvm_heap_used": 0, "jvm_max_memory": 1, "brk_default_pool_used": int(self.stored_bytes)}
            body = json.dumps([{"metrics": {**used, "jvm_max_direct_memory": self._plan.limit_bytes}}]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder, topics = FrameDecoder(), dict[int, str]()
        try:
            while data := await reader.read(_READ_BYTES):
                decoder.receive_data(data)
                while isinstance(event := decoder.next_event(), Frame):
                    writer.write(self._answer(commands.decode_command(event.command), event.head.frame_bytes, topics))
                await writer.drain()
        except (ConnectionError, ProtocolError):
            return
        finally:
            writer.close()

    def _answer(self, command: pb.BaseCommand, frame_bytes: int, topics: dict[int, str]) -> bytes:
        answer = pb.BaseCommand()
        if command.type == CommandType.CONNECT:
            answer.type = pb.BaseCommand.CONNECTED
            answer.connected.server_version = "demo"
            answer.connected.protocol_version = commands.negotiated_version(command.connect.protocol_version)
        elif command.type == CommandType.PRODUCER:
            topics[command.producer.producer_id] = command.producer.topic
            answer.type = pb.BaseCommand.PRODUCER_SUCCESS
            answer.producer_success.request_id = command.producer.request_id
            answer.producer_success.producer_name = "demo"
        elif command.type == CommandType.SEND:
            producer, number = command.send.producer_id, command.send.sequence_id
            self._store(frame_bytes)
            self._tally.arrived += 1
            expected = self._next.get((topics[producer], producer), 0)
            self._tally.out_of_order += number != expected
            self._next[topics[producer], producer] = number + 1
            answer.type = pb.BaseCommand.SEND_RECEIPT
            answer.send_receipt.producer_id, answer.send_receipt.sequence_id = producer, number
        else:
            return commands.PONG_FRAME if command.type == CommandType.PING else b""
        return commands.frame(answer)

    def _crashed(self, error: BaseException) -> None:
        self.crash = self.crash or error


class StormProducer:
    """A producer on a connection of its own: `run` sends until the storm is over, and waits for all receipts."""

    def __init__(self, number: int, plan: OverloadPlan, tally: OverloadTally) -> None:
        self._number = number
        self._plan = plan
        self._tally = tally
        self._places = asyncio.Semaphore(MOST_PENDING)

    async def run(self, host: str, port: int, broker: str) -> None:
        """Connect through the proxy, send, and leave; a connection that ends before is counted."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(_connect(broker) + _producer(self._number))
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(reader, writer))
                await self._send(writer)
                for _ in range(MOST_PENDING):
                    await self._places.acquire()
                reading.cancel()
        except* ConnectionError:
            self._tally.connections_lost += 1
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        ends, latest = loop.time() + self._plan.seconds, loop.time() + self._plan.most_seconds
        pace = MESSAGE_BYTES * self._plan.producers / self._plan.bytes_per_second
        number, due = 0, loop.time()
        while (now := loop.time()) < ends or (now < latest and not self._tally.is_released):
            # A producer that was held does not make up for that: its application waits, too.
            due = max(due + pace, now)
            await asyncio.sleep(due - now)
            await self._places.acquire()
            writer.write(_send(self._number, number))
            self._tally.sent += 1
            number += 1
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(_READ_BYTES):
            decoder.receive_data(data)
            while isinstance(event := decoder.next_event(), Frame):
                command = commands.decode_command(event.command)
                if command.type == CommandType.SEND_RECEIPT:
                    self._places.release()
                elif command.type == CommandType.PING:
                    writer.write(commands.PONG_FRAME)
        raise ConnectionResetError("the connection ended before its producer")


def _connect(broker: str) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version = "storm"
    command.connect.protocol_version = commands.PROTOCOL_VERSION
    command.connect.proxy_to_broker_url = broker
    return commands.frame(command)


def _producer(number: int) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
    command.producer.topic = _TOPIC.format(number)
    command.producer.producer_id, command.producer.request_id = number, 1
    return commands.frame(command)


def _send(producer: int, number: int) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = producer, number
    encoded = command.SerializeToString()
    payload = bytes(MESSAGE_BYTES)
    return (4 + len(encoded) + len(payload)).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded + payload
