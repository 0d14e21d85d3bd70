"""Measure what the event log costs and print JSON: topic lists with and without it in turns, and one event alone.

Both proxies live in this process, one with event files and one without, in front of one embedded broker; rounds
alternate in the order off, on, on, off, so that what else the machine does is in both. The share is that of CPU time of
the process, client and broker included, so that what the proxy alone pays is more by what these two cost; `lists` gives
that for each of the shapes. Run: `python -m benchmarks.bench_events [--quick]`.
"""

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import uvloop

from protocol.commands import frame
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app import Proxy
from proxy.config import Config
from proxy.demo.broker import EmbeddedBroker
from proxy.demo.topics import GeneratedTopics
from proxy.log import open_log

LOOPBACK: Final = "127.0.0.1"
CONNECTIONS: Final = 16
# Name, topics of 100 bytes, whether all ask for the same list.
SHAPES: Final = (("large", 10_000, False), ("large, equal", 10_000, True), ("small", 100, False))


class Discarded:
    """Take events, and forget them."""

    def put(self, event: Mapping[str, object]) -> None:
        pass


def proxy_for(broker: EmbeddedBroker, sink: Discarded | None = None, **keys: object) -> Proxy:
    given = {
        "servicePort": 0,
        "webServicePort": 0,
        "bindAddress": LOOPBACK,
        "brokerServiceURL": broker.service_url,
        "controlSocketPath": "none",
        "shutdownDrainMillis": 100,
        **keys,
    }
    return Proxy(Config.load(None, {}, {k: str(v) for k, v in given.items()}), open_log("error", "json"), None, sink)


class Client:
    """Ask for lists, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, namespace: str) -> None:
        self._reader = reader
        self._writer = writer
        request = pb.CommandGetTopicsOfNamespace(request_id=1, namespace=namespace)
        kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE
        self._question = frame(pb.BaseCommand(type=kind, getTopicsOfNamespace=request))

    @classmethod
    async def connected(cls, port: int, namespace: str) -> "Client":
        reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=1 << 22)
        connect = pb.CommandConnect(client_version="benchmark", protocol_version=21)
        writer.write(frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect)))
        client = cls(reader, writer, namespace)
        await client._frame()
        return client

    async def lists(self, count: int) -> None:
        for _ in range(count):
            self._writer.write(self._question)
            assert await self._frame() > 1000, "an error instead of a list"

    async def _frame(self) -> int:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        await self._reader.readexactly(size)
        return size

    def close(self) -> None:
        self._writer.close()


async def seconds(clients: list[Client], count: int) -> float:
    """Give the CPU seconds of this process for so many lists of each client."""
    began = time.process_time()
    await asyncio.gather(*(client.lists(count) for client in clients))
    return time.process_time() - began


async def compare(topics: int, equal: bool, rounds: int, count: int, directory: Path) -> dict[str, Any]:
    async with EmbeddedBroker(GeneratedTopics(CONNECTIONS, topics, 100)) as broker:
        proxies = {
            "off": proxy_for(broker),
            "recorder": proxy_for(broker, Discarded()),
            "files": proxy_for(broker, eventLogDirectory=directory),
        }
        clients = {}
        for name, proxy in proxies.items():
            await proxy.start()
            spaces = [f"demo/ns-{0 if equal else number:02}" for number in range(CONNECTIONS)]
            clients[name] = [await Client.connected(proxy.port, space) for space in spaces]
            await seconds(clients[name], count)
        order = list(proxies)
        taken: dict[str, list[float]] = {name: [] for name in proxies}
        for _ in range(rounds):
            for name in (*order, *reversed(order)):
                taken[name].append(await seconds(clients[name], count))
        for name, proxy in proxies.items():
            for client in clients[name]:
                client.close()
            await proxy.stop()
    return judged(taken, CONNECTIONS * count)


def judged(taken: dict[str, list[float]], lists: int) -> dict[str, Any]:
    """Give microseconds of CPU a list, and what the log adds: medians of the ratios of neighbours."""
    off = taken["off"]
    return {
        "cpu_us_a_list": {name: round(statistics.median(found) / lists * 1e6, 1) for name, found in taken.items()},
        "added_percent": {
            name: round((statistics.median(on / base for on, base in zip(found, off, strict=True)) - 1) * 100, 2)
            for name, found in taken.items()
            if name != "off"
        },
    }


async def measure(rounds: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        found = {}
        for name, topics, equal in SHAPES:
            times = count if topics > 1000 else count * 10
            found[name] = await compare(topics, equal, rounds, times, Path(directory))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short look")
    rounds, count = (3, 10) if parser.parse_args().quick else (12, 40)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(rounds, count))
    json.dump({"python": platform.python_version(), "lists": found}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
