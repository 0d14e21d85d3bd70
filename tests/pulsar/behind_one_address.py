"""Owns several proxies behind one address: a listener that gives each new connection to the next proxy.

Obeys one rule: a proxy is restarted at a known moment only, before the listener gives it a connection, so that a client
that looked up at one proxy connects at another that has just started.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from proxy.core.tasks import TaskScope
from tests.pulsar.proxy_process import Proxy, host_and_port, run_proxy
from tests.pulsar.standalone import Broker
from tests.support.patience import patient
from tests.support.sockets.ports import free_ports

_STEP_BYTES: Final = 64 * 1024
_WAIT_SECONDS: Final = 60.0


class OneAddress:
    """Running proxies; `service_url` is that of the listener before them."""

    def __init__(self, directory: Path, broker: Broker, keys: Mapping[str, str], count: int) -> None:
        self._directory = directory
        self._broker = broker
        self._keys = [{**keys, "servicePort": str(port)} for port in free_ports(count)]
        self._stacks = [ExitStack() for _ in range(count)]
        # A child process ends with the thread that started it, so that this thread starts them all.
        self._starter = ThreadPoolExecutor(1, "proxies")
        self._turn = 0
        self._first = 0
        self.restarts_left = 0
        self.restarted = 0
        self.proxies: list[Proxy] = []
        self.service_url = ""

    def start(self) -> None:
        """Start all proxies."""
        for number in range(len(self._stacks)):
            self.proxies.append(self._starter.submit(self._run, number).result())

    def stop(self) -> None:
        """End all proxies; raises ProcessFailedError for an unclean end."""
        try:
            for stack in self._stacks:
                stack.close()
        finally:
            self._starter.shutdown()

    def restart(self, times: int) -> None:
        """Restart as many proxies, each just before it gets its next connection, but for the very next one."""
        self.restarts_left = times
        self._first = self._turn

    def logs(self) -> str:
        """Return what the proxies have said since each of them started."""
        return "".join(proxy.process.log.read_text(errors="replace") for proxy in self.proxies)

    def next_port(self) -> int:
        """Return the port of the proxy whose turn it is, which may have to start again first. Blocks."""
        number = self._turn % len(self.proxies)
        if self.restarts_left and self._turn > self._first:
            self.restarts_left -= 1
            self.restarted += 1
            self._stacks[number].close()
            self.proxies[number] = self._starter.submit(self._run, number).result()
        self._turn += 1
        return host_and_port(self.proxies[number].service_url)[1]

    def _run(self, number: int) -> Proxy:
        return self._stacks[number].enter_context(run_proxy(self._directory, self._broker, self._keys[number]))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while piece := await reader.read(_STEP_BYTES):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()


class Forwarder:
    """A listener at `host` in a thread of its own; `port_of` says, for each connection, where on loopback it goes."""

    def __init__(self, port_of: "Iterator[int]", host: str = "127.0.0.1", port: int = 0) -> None:
        self._ports = port_of
        self._host = host
        self.port = port
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        # One at a time: the order of the turns is that of the connections.
        self._turns = asyncio.Lock()
        self._pipes = TaskScope(lambda error: None)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> "Forwarder":
        self._thread.start()
        assert self._ready.wait(patient(_WAIT_SECONDS))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(patient(_WAIT_SECONDS))
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accepted, self._host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        self._pipes.cancel()
        await self._pipes.emptied()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._turns:
            port = await self._loop.run_in_executor(None, next, self._ports)
        try:
            from_proxy, to_proxy = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        self._pipes.start(_pipe(reader, to_proxy))
        self._pipes.start(_pipe(from_proxy, writer))


@contextmanager
def one_address(directory: Path, broker: Broker, keys: Mapping[str, str], count: int = 3) -> Iterator[OneAddress]:
    """Run `count` proxies behind one address until the block ends; raises ProcessFailedError."""
    behind = OneAddress(directory, broker, keys, count)
    try:
        behind.start()
        with Forwarder(iter(behind.next_port, None)) as listener:
            behind.service_url = f"pulsar://127.0.0.1:{listener.port}"
            yield behind
    finally:
        behind.stop()
