"""Own several proxies behind one address: a listener that gives each new connection to the next proxy.

Rule: the listener passes bytes and knows no protocol. A proxy that is restarted has no memory of what it saw before.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from proxy.app.proxy import Proxy
from proxy.core.log import open_log
from proxy.core.tasks import TaskScope
from tests.support.clients.async_client import LOOPBACK
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import config_for

STEP_BYTES = 64 * 1024


class SeveralProxies:
    """Running proxies of one configuration; `port` is that of the listener before them."""

    def __init__(self, broker_url: str, keys: dict[str, Any]) -> None:
        self._config = config_for(broker_url, **keys)
        self._server: asyncio.Server | None = None
        self._pipes = TaskScope(lambda error: None)
        self.turn = 0
        self.log = io.BytesIO()
        self.proxies: list[Proxy] = []

    @property
    def port(self) -> int:
        """Return the port of the listener."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def next(self) -> int:
        """Return the number of the proxy that gets the next connection."""
        return self.turn % len(self.proxies)

    def caused(self, cause: str) -> int:
        """Count the connections to the proxies that run now that ended for `cause`."""
        return sum(counted(proxy.counters, "disconnects", cause) for proxy in self.proxies)

    async def restart(self, number: int) -> None:
        """Replace a proxy by one that has just started."""
        await self.proxies[number].stop(0)
        self.proxies[number] = await self._started()

    async def start(self, count: int) -> None:
        """Start the proxies and the listener."""
        for _ in range(count):
            self.proxies.append(await self._started())
        self._server = await asyncio.start_server(self._accepted, LOOPBACK, 0)

    async def stop(self) -> None:
        """End the listener, its connections, and the proxies."""
        if self._server is not None:
            self._server.close()
        self._pipes.cancel()
        await self._pipes.emptied()
        for proxy in self.proxies:
            await proxy.stop(0)

    async def _started(self) -> Proxy:
        proxy = Proxy(self._config, open_log("info", "json", self.log))
        await proxy.start()
        return proxy

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self.proxies[self.next()].port
        self.turn += 1
        from_proxy, to_proxy = await asyncio.open_connection(LOOPBACK, port)
        self._pipes.start(_pipe(reader, to_proxy))
        self._pipes.start(_pipe(from_proxy, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while piece := await reader.read(STEP_BYTES):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def several_proxies(count: int, broker_url: str, **keys: Any) -> AsyncIterator[SeveralProxies]:
    """Run `count` proxies behind one address until the block ends."""
    several = SeveralProxies(broker_url, keys)
    try:
        await several.start(count)
        yield several
    finally:
        await several.stop()
