"""Own a proxy in a child process of its own: its configuration file, its log, and the clients a test opens.

Rule: it is found by the lines that it writes, never by a time; whatever happens in the block, it does not outlive it.
"""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.cli.demo.children import READY_SECONDS, Child
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.patience import in_time, patient, patient_clocks


@dataclass
class Running:
    """A proxy in a child process, and where it listens."""

    child: Child
    config: Path
    log: Path
    port: int
    web_port: int
    clients: list[AsyncClient]

    async def client(self, rcvbuf: int | None = None) -> AsyncClient:
        self.clients.append(await AsyncClient.open(self.port, rcvbuf))
        return self.clients[-1]

    async def connected(self, rcvbuf: int | None = None) -> AsyncClient:
        client = await self.client(rcvbuf)
        await client.connect()
        return client

    async def get(self, path: str) -> bytes:
        """Ask the web port, and give status line, headers and body."""
        client = await AsyncClient.open(self.web_port)
        try:
            await client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return await client.rest()
        finally:
            client.close()

    async def draining(self) -> None:
        """Tell the proxy to leave, and wait until its readiness says so."""
        assert (await self.get("/readyz")).startswith(b"HTTP/1.1 200 ")
        os.kill(self.child.pid, signal.SIGTERM)
        await eventually(lambda: self.said("stopping"), "the drain")
        answer = await self.get("/readyz")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.rstrip().endswith(b"draining")

    async def exit_code(self) -> int:
        async with in_time():
            return await self.child.ended()

    def said(self, event: str) -> int:
        """Count the log lines of one event."""
        return sum(line.get("event") == event or line.get("message") == event for line in self._lines())

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Give the log lines of one event."""
        return [line for line in self._lines() if line.get("event") == event]

    def _lines(self) -> list[dict[str, Any]]:
        # The kernel may show a part of the line that is being written, the last one.
        written = self.log.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in written.splitlines() if line.startswith(b"{")]

    def descriptors(self) -> int:
        """Count open files; a file that is only just read is not counted."""
        return min(len(os.listdir(f"/proc/{self.child.pid}/fd")) for _ in range(20))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def child_proxy(
    directory: Path,
    broker: EmbeddedBroker,
    *,
    # A sequence of words; its type would be asked of every key that a dictionary brings.
    options: Any = (),
    **keys: object,
) -> AsyncIterator[Running]:
    """Run `serve` in front of `broker` until the block ends."""
    settings = {
        "servicePort": 0,
        "webServicePort": 0,
        "bindAddress": LOOPBACK,
        "clusterName": "test",
        "shutdownPreDrainMillis": 0,
        "controlSocketPath": directory / "control.sock",
        "brokerServiceURL": broker.service_url,
        **patient_clocks(),
        **keys,
    }
    config = directory / "proxy.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with Child("tests.support.proxies.served", ["serve", "--config", str(config), *options], directory) as child:
        web = await child.said("web_port", patient(READY_SECONDS))
        service = await child.said("port", patient(READY_SECONDS))
        running = Running(child, config, child.log, service["port"], web["web_port"], [])
        try:
            yield running
        finally:
            for client in running.clients:
                client.close()


@asynccontextmanager
async def proxy_and_broker(directory: Path, **keys: object) -> AsyncIterator[tuple[Running, EmbeddedBroker]]:
    """Run `serve` in front of a broker of a few topics, to which clients may also ask to be joined."""
    async with (
        EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker,
        child_proxy(directory, broker, brokerProxyAllowedTargetPorts="*", **keys) as proxy,
    ):
        yield proxy, broker
