"""The command `pulsar-proxy demo --overload`: producers that send more than their broker takes are held and released.

The promise: no connection ends, every message arrives once and in order, producers were held and released, and the
broker's memory stayed below the high mark but for what arrives before the proxy knows.

That memory is a number: it grows by what arrives, and shrinks as if consumers read. Consumers take half of what arrives
until memory is short for the first time, and have a fixed rate from then on: a machine that is too busy for the
producers' rate fills the memory all the same. The broker says so over HTTP, as a real one does. A producer waits for
receipts as Pulsar's clients do: a few messages are under way at most.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.frames import SIZE_BYTES
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo.broker import LOOPBACK, commands_of, serve
from proxy.cli.demo.children import metrics, proxy_child
from proxy.cli.demo.table import mib, table
from proxy.config.config import Config

MESSAGE_BYTES: Final = 8192
PRODUCER_BYTES_PER_SECOND: Final = 200e3
MOST_BYTES_PER_SECOND: Final = 12e6
# Messages of a producer that no receipt has come for.
MOST_PENDING: Final = 16
# The part of its memory from which a broker is short, as the proxy's own key has it, and the part in use at first.
HIGH_MARK: Final = Config.overload_memory_high_watermark.default
FILLED_AT_FIRST: Final = 0.6
# So many times its seconds a storm may take, where nobody was held and released, or a busy machine sends less.
SLOW_MACHINE: Final = 3
# A broker is asked each 3 s; then comes a sample, and the answer of the broker.
LATE_SECONDS: Final = 5.0
# Producers that are still held when the storm is over are released before.
END_SECONDS: Final = 30.0


class OverloadPlan:
    """A storm: producers and its least seconds; half of the bytes that they send leaves the broker."""

    def __init__(self, producers: int, seconds: float) -> None:
        self.producers = producers
        self.seconds = seconds
        # Few producers leave a busy machine time to send as much.
        self.bytes_per_second = min(MOST_BYTES_PER_SECOND, producers * PRODUCER_BYTES_PER_SECOND)
        self.drained_per_second = self.bytes_per_second / 2
        # The storm, not slowed down, would fill much more.
        self.limit_bytes = int(self.drained_per_second * seconds * 1.28)
        # The promise: the mark, what arrives before the proxy knows, and what no receipt has come for.
        late = LATE_SECONDS * (self.bytes_per_second - self.drained_per_second)
        self.allowed_bytes = HIGH_MARK * self.limit_bytes + late + producers * MOST_PENDING * MESSAGE_BYTES


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
        self._next = Counter[int]()

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
        if self._drained_at is None and self._stored >= HIGH_MARK * self._plan.limit_bytes:
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
            self._tally.out_of_order += number != self._next[producer]
            self._next[producer] = number + 1
            answer.type = pb.BaseCommand.SEND_RECEIPT
            answer.send_receipt.producer_id, answer.send_receipt.sequence_id = producer, number
        else:
            return (commands.PONG_FRAME,) if command.type == CommandType.PING else ()
        return (commands.frame(answer),)


async def produce(producer: int, plan: OverloadPlan, tally: OverloadTally, proxy_port: int, broker: str) -> None:
    """Send through the proxy on a connection of its own until the storm is over, and wait for all receipts.

    A connection that ends before is counted.
    """
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy_port)
    places = asyncio.Semaphore(MOST_PENDING)

    async def read() -> None:
        async for command in commands_of(reader):
            if command.type == CommandType.SEND_RECEIPT:
                places.release()
            elif command.type == CommandType.PING:
                writer.write(commands.PONG_FRAME)
        raise ConnectionResetError("the connection ended before its producer")

    try:
        writer.write(_opened(producer, broker))
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            await _send(producer, plan, tally, places, writer)
            for _ in range(MOST_PENDING):
                await places.acquire()
            reading.cancel()
    except* ConnectionError:
        tally.connections_lost += 1
    finally:
        writer.close()


async def _send(
    producer: int, plan: OverloadPlan, tally: OverloadTally, places: asyncio.Semaphore, writer: asyncio.StreamWriter
) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    ends, latest = due + plan.seconds, due + SLOW_MACHINE * plan.seconds
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = producer, 0
    while (now := loop.time()) < ends or (now < latest and not tally.is_released):
        # A producer that was held does not make up for that: its application waits, too.
        due = max(due + MESSAGE_BYTES * plan.producers / plan.bytes_per_second, now)
        await asyncio.sleep(due - now)
        await places.acquire()
        encoded = command.SerializeToString()
        sizes = (SIZE_BYTES + len(encoded) + MESSAGE_BYTES, len(encoded))
        writer.write(b"".join(size.to_bytes(SIZE_BYTES, "big") for size in sizes) + encoded + bytes(MESSAGE_BYTES))
        tally.sent += 1
        command.send.sequence_id += 1
        await writer.drain()


def _opened(producer: int, broker: str) -> bytes:
    connect, open_producer = pb.BaseCommand(type=pb.BaseCommand.CONNECT), pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
    connect.connect.client_version = "storm"
    connect.connect.protocol_version = commands.PROTOCOL_VERSION
    connect.connect.proxy_to_broker_url = broker
    open_producer.producer.topic = f"persistent://demo/overload/t-{producer}"
    open_producer.producer.producer_id, open_producer.producer.request_id = producer, 1
    return commands.frame(connect) + commands.frame(open_producer)


def broken(plan: OverloadPlan, tally: OverloadTally) -> list[str]:
    """Return a line for each broken promise."""
    counts = (
        (tally.connections_lost, "connections ended"),
        (tally.sent - tally.arrived, "messages did not arrive"),
        (tally.out_of_order, "messages arrived twice or out of order"),
    )
    lines = [f"{count} {what}, expected 0" for count, what in counts if count]
    if not tally.most_paused:
        lines.append("no producer was held")
    elif not tally.is_released:
        lines.append("producers are held still")
    if tally.most_bytes > plan.allowed_bytes:
        lines.append(f"the broker held {mib(tally.most_bytes)}, expected {mib(plan.allowed_bytes)}")
    return lines


def render(plan: OverloadPlan, tally: OverloadTally) -> str:
    """Return the table and the verdict as text."""
    arrived = f"{tally.arrived:,} arrived, {tally.out_of_order} twice or out of order"
    rows = [
        ("producers", f"{plan.producers:,}, {mib(plan.bytes_per_second)}/s in all, twice what the broker gets rid of"),
        ("messages", f"{tally.sent:,} sent, {arrived}"),
        ("connections lost", f"{tally.connections_lost}"),
        ("held at once", f"{tally.most_paused:,} connections"),
        ("longest pause", f"{tally.longest_pause_seconds:.1f} s, of all {tally.paused_seconds:,.0f} s"),
        ("frames in pauses", f"{tally.drips:,}"),
        ("broker's limit", mib(plan.limit_bytes)),
        ("broker at most", f"{mib(tally.most_bytes)} = {tally.most_bytes / plan.limit_bytes:.2f}"),
        ("allowed", f"{mib(plan.allowed_bytes)} = {HIGH_MARK} x limit + {LATE_SECONDS:g} s + under way"),
        ("duration", f"{tally.seconds:.1f} s"),
    ]
    kept = "The promise held: producers waited, nothing was lost, memory within its bound."
    return table(rows, broken(plan, tally), kept)


async def run_overload(options: argparse.Namespace, directory: Path, children: ExitStack) -> list[str]:
    """Run the storm and return the promises that broke."""
    plan, tally = OverloadPlan(options.connections, options.overload_seconds), OverloadTally()
    broker = StoringBroker(plan, tally)
    port, web_port = await broker.start()
    keys = {
        "brokerServiceURL": f"pulsar://{LOOPBACK}:{port}",
        "brokerWebServiceURL": f"http://{LOOPBACK}:{web_port}",
        "overloadThrottleEnabled": "true",
        "overloadSignals": "brokers",
    }
    proxy = children.enter_context(proxy_child(directory, options, keys))
    metrics_port, clients_port = (await proxy.said("web_port"))["web_port"], (await proxy.said("port"))["port"]
    print(f"{plan.producers:,} producers send twice what their broker gets rid of", flush=True)
    async with asyncio.TaskGroup() as group:
        storm = group.create_task(_storm(plan, tally, clients_port, f"{LOOPBACK}:{port}"))
        await _watch(plan, tally, broker, metrics_port, storm)
    print(f"\n{render(plan, tally)}")
    return broken(plan, tally)


async def _storm(plan: OverloadPlan, tally: OverloadTally, proxy_port: int, broker: str) -> None:
    """Let all producers send; messages that never come are counted as such."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SLOW_MACHINE * plan.seconds + END_SECONDS), asyncio.TaskGroup() as group:
            for number in range(plan.producers):
                group.create_task(produce(number, plan, tally, proxy_port, broker))


async def _watch(
    plan: OverloadPlan, tally: OverloadTally, broker: StoringBroker, metrics_port: int, storm: "asyncio.Task[None]"
) -> None:
    """Show each second how far the storm is, until it is over and nobody is held, as the proxy's metrics say."""
    loop = asyncio.get_running_loop()
    began, over = loop.time(), 0.0
    while True:
        found = await metrics(metrics_port)
        paused = int(found.get('overload_paused_connections{what="paused"}', 0))
        tally.is_released = tally.is_released or (tally.most_paused > 0 and not paused)
        tally.most_paused = max(tally.most_paused, paused)
        longest = found.get("overload_longest_pause_seconds", 0.0)
        tally.longest_pause_seconds = max(tally.longest_pause_seconds, longest)
        tally.paused_seconds = found.get("overload_paused_seconds_total", 0.0)
        tally.drips = int(found.get("overload_drips_total", 0))
        tally.seconds = loop.time() - began
        print(
            f"{tally.seconds:5.1f} s  broker at {broker.stored_bytes / plan.limit_bytes:.2f} of its "
            f"memory, {paused} producers held, {tally.arrived:,} messages arrived",
            flush=True,
        )
        # The last message may pass in the moment of the release, before the proxy's metrics tell of the release.
        over += storm.done()
        if over and (not paused or over > END_SECONDS):
            return
        await asyncio.sleep(1.0)
