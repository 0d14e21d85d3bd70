"""Producers, and a broker that stores their messages in a bounded memory: for `pulsar-proxy demo --overload`.

The broker's memory is a number: it grows by what arrives, and shrinks as if consumers read. Consumers take half of what
arrives until memory is short for the first time, and have a fixed rate from then on: a machine that is too busy for the
producers' rate fills the memory all the same. The broker says so over HTTP, as a real one does. A producer waits for
receipts as Pulsar's clients do: a few messages are under way at most.
"""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo.broker import LOOPBACK, commands_of, serve
from proxy.config.config import Config

MESSAGE_BYTES: Final = 8192
PRODUCER_BYTES_PER_SECOND: Final = 200e3
MOST_BYTES_PER_SECOND: Final = 12e6
# Messages of a producer that no receipt has come for.
MOST_PENDING: Final = 16
# The memory in use when the storm begins, as a part of the limit.
FILLED_AT_FIRST: Final = 0.6
# So many times its seconds a storm may take, where a busy machine sends less than the plan says.
SLOW_MACHINE: Final = 3
_TOPIC: Final = "persistent://demo/overload/t-{}"


@dataclass(frozen=True, slots=True)
class OverloadPlan:
    """A storm: producers and its least seconds; half of the bytes that they send leaves the broker.

    `high_mark` is the part of its memory from which the broker is short of memory, as the proxy's own key has it.
    """

    producers: int
    seconds: float
    high_mark: float = Config.overload_memory_high_watermark.default

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

    @property
    def under_way_bytes(self) -> int:
        """The messages that no receipt has come for."""
        return self.producers * MOST_PENDING * MESSAGE_BYTES


@dataclass(slots=True)
class OverloadTally:
    """The counts of a storm, and what the proxy's metrics said of pauses."""

    sent: int = 0
    arrived: int = 0
    out_of_order: int = 0
    connections_lost: int = 0
    # Producers were held, and all of them have been released.
    is_released: bool = False
    # The broker's memory.
    most_bytes: float = 0.0
    most_paused: int = 0
    longest_pause_seconds: float = 0.0
    paused_seconds: float = 0.0
    drips: int = 0
    seconds: float = 0.0


class StoringBroker:
    """A broker for producers only, and its web service."""

    def __init__(self, plan: OverloadPlan, tally: OverloadTally) -> None:
        self._plan = plan
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._stored = FILLED_AT_FIRST * plan.limit_bytes
        # None until memory was short for the first time.
        self._drained_at: float | None = None
        # The number of each producer's next message.
        self._next: dict[int, int] = {}

    async def start(self) -> tuple[int, int]:
        """Listen on free ports; return that for clients and that of the web service."""
        for each in (partial(serve, self._answer), self._tell):
            self._servers.append(await asyncio.start_server(each, LOOPBACK, 0))
        first, second = (int(server.sockets[0].getsockname()[1]) for server in self._servers)
        return first, second

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
        self._tally.most_bytes = max(self._tally.most_bytes, self._stored)
        if self._drained_at is None and self._stored >= self._plan.high_mark * self._plan.limit_bytes:
            self._drained_at = self._loop.time()

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer any question with the statistics of memory."""
        used = {"jvm_heap_used": 0, "jvm_max_memory": 1, "brk_default_pool_used": int(self.stored_bytes)}
        body = json.dumps([{"metrics": {**used, "jvm_max_direct_memory": self._plan.limit_bytes}}]).encode()
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        writer.close()

    def _answer(self, command: pb.BaseCommand) -> Iterable[bytes]:
        if command.type == CommandType.CONNECT:
            return (commands.connected_lookup(command.connect, "-demo"),)
        answer = pb.BaseCommand()
        if command.type == CommandType.PRODUCER:
            answer.type = pb.BaseCommand.PRODUCER_SUCCESS
            answer.producer_success.request_id = command.producer.request_id
            answer.producer_success.producer_name = "demo"
        elif command.type == CommandType.SEND:
            producer, number = command.send.producer_id, command.send.sequence_id
            self._store(MESSAGE_BYTES)
            self._tally.arrived += 1
            self._tally.out_of_order += number != self._next.get(producer, 0)
            self._next[producer] = number + 1
            answer.type = pb.BaseCommand.SEND_RECEIPT
            answer.send_receipt.producer_id, answer.send_receipt.sequence_id = producer, number
        else:
            return (commands.PONG_FRAME,) if command.type == CommandType.PING else ()
        return (commands.frame(answer),)


class StormProducer:
    """A producer on a connection of its own: `run` sends until the storm is over, and waits for all receipts."""

    def __init__(self, number: int, plan: OverloadPlan, tally: OverloadTally) -> None:
        self._number = number
        self._plan = plan
        self._tally = tally
        self._places = asyncio.Semaphore(MOST_PENDING)

    async def run(self, port: int, broker: str) -> None:
        """Connect through the proxy, send, and leave; a connection that ends before is counted."""
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            writer.write(self._opened(broker))
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

    def _opened(self, broker: str) -> bytes:
        connect = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        connect.connect.client_version = "storm"
        connect.connect.protocol_version = commands.PROTOCOL_VERSION
        connect.connect.proxy_to_broker_url = broker
        producer = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        producer.producer.topic = _TOPIC.format(self._number)
        producer.producer.producer_id, producer.producer.request_id = self._number, 1
        return commands.frame(connect) + commands.frame(producer)

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
            writer.write(_message(self._number, number))
            self._tally.sent += 1
            number += 1
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in commands_of(reader):
            if command.type == CommandType.SEND_RECEIPT:
                self._places.release()
            elif command.type == CommandType.PING:
                writer.write(commands.PONG_FRAME)
        raise ConnectionResetError("the connection ended before its producer")


def _message(producer: int, number: int) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = producer, number
    encoded = command.SerializeToString()
    sizes = (4 + len(encoded) + MESSAGE_BYTES).to_bytes(4, "big") + len(encoded).to_bytes(4, "big")
    return sizes + encoded + bytes(MESSAGE_BYTES)
