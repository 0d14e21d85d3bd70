"""Own a TCP proxy that does to a broker's connections what networks and restarts do: refuse, cut, swallow, delay.

Rule: it knows bytes only and adds none. A fault holds until it is taken back; a port once taken stays the same.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from protocol.host_port import host_port
from proxy.core.tasks import TaskScope
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually

_PIECE_BYTES = 64 * 1024


class _Lost(Exception):
    """One end is gone."""


class FaultProxy:
    """Stand at `host:port` in front of the broker at `LOOPBACK:target_port`, which may be set later.

    `accepted` counts connections, `passed_bytes` what went through them; `hang_up` closes each new one at once; while
    `flows` is not set no byte passes, and `delay_seconds` holds each piece back.
    """

    def __init__(self, target_port: int = 0, host: str = LOOPBACK, port: int = 0) -> None:
        self.target_port = target_port
        self.host = host
        self.accepted = 0
        self.passed_bytes = 0
        self.hang_up = False
        self.delay_seconds = 0.0
        self.flows = asyncio.Event()
        self.flows.set()
        self._crashes: list[BaseException] = []
        self._scope = TaskScope(self._crashes.append)
        self._carriers: dict[int, Callable[[], object]] = {}
        self._listening: socket.socket | None = None
        self.port = port
        self.listen()

    @property
    def url(self) -> str:
        return f"pulsar://{self.address}"

    @property
    def address(self) -> str:
        return host_port(self.host, self.port)

    @property
    def carried(self) -> int:
        """Count the connections that are open at this moment."""
        return len(self._carriers)

    def listen(self) -> None:
        """Take connections (again)."""
        if self._listening is not None:
            return
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.create_server((self.host, self.port), family=family, backlog=256)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept)

    def refuse(self) -> None:
        """Refuse connections, and cut those that are open: what a broker that is killed does."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
        self.cut()

    def cut(self) -> None:
        """Reset all open connections."""
        for cancel in self._carriers.values():
            cancel()

    async def close(self) -> None:
        self.refuse()
        self._scope.cancel()
        await self._scope.emptied()
        assert not self._crashes, self._crashes

    def _accept(self) -> None:
        assert self._listening is not None
        with suppress(BlockingIOError):
            while True:
                accepted, _ = self._listening.accept()
                accepted.setblocking(False)
                self.accepted += 1
                if self.hang_up:
                    accepted.close()
                else:
                    self._start(AsyncClient(accepted))

    def _start(self, client: AsyncClient) -> None:
        number = self.accepted

        def over() -> None:
            del self._carriers[number]
            with suppress(OSError):
                client.reset()

        self._carriers[number] = self._scope.start(self._carry(client), over)

    async def _carry(self, client: AsyncClient) -> None:
        await self.flows.wait()
        try:
            broker = await AsyncClient.open(self.target_port)
        except OSError:
            return
        # An end that is lost, or a cut, ends the group: then both sides are reset.
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(client, broker))
                group.create_task(self._pass(broker, client))
            for end in (client, broker):
                end.close()
        except* _Lost:
            pass
        finally:
            with suppress(OSError):
                broker.reset()

    async def _pass(self, source: AsyncClient, target: AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        try:
            while piece := await loop.sock_recv(source.sock, _PIECE_BYTES):
                await self.flows.wait()
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await loop.sock_sendall(target.sock, piece)
                self.passed_bytes += len(piece)
            target.fin()
        except OSError as error:
            raise _Lost from error


@asynccontextmanager
async def fault_proxies(count: int, host: str = LOOPBACK) -> AsyncIterator[list[FaultProxy]]:
    """Run some, and see that each of them carries nothing any more at the end."""
    proxies = [FaultProxy(host=host) for _ in range(count)]
    try:
        yield proxies
        await eventually(lambda: not any(proxy.carried for proxy in proxies), "nothing carried any more")
    finally:
        for proxy in proxies:
            await proxy.close()


def service_url(proxies: list[FaultProxy]) -> str:
    """Name them all as `brokerServiceURL` does."""
    return ",".join(proxy.url for proxy in proxies)
