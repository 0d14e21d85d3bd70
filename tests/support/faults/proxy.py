"""Own a TCP proxy that does to connections what networks, restarts and peers do: refuse, cut, swallow, slow, slice.

Rule: it knows bytes only and adds none. A fault holds until it is taken back; a port once taken stays the same.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from protocol.host_port import host_port
from proxy.core.tasks import TaskScope
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.faults.carried import Carried
from tests.support.faults.kinds import End, Fault, Point
from tests.support.sockets.ports import free_port


class FaultProxy:
    """Stand at `host:port` in front of the server at `LOOPBACK:target_port`, which may be set later.

    `accepted` counts connections, `connections` are those that are open, oldest first; `hang_up` closes each new one at
    once; while `flows` is not set nothing is carried for a new one. `arm_next` gives the next one a fault.
    """

    def __init__(self, target_port: int = 0, host: str = LOOPBACK, port: int = 0) -> None:
        self.target_port = target_port
        self.host = host
        self.accepted = 0
        self.hang_up = False
        self.flows = asyncio.Event()
        self.flows.set()
        self.connections: list[Carried] = []
        # Of a connection that was reset, too.
        self._begun: list[asyncio.Event] = []
        self._cancels: dict[Carried, Callable[[], object]] = {}
        self._next: tuple[Fault, Point] | None = None
        self._crashes: list[BaseException] = []
        self._scope = TaskScope(self._crashes.append)
        self._listening: socket.socket | None = None
        # No port that the kernel gives away: while it refuses, or at another host, somebody else may have it.
        self.port = port or free_port()
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
        return len(self.connections)

    @property
    def struck(self) -> bool:
        """Tell whether a fault has begun at any connection, of those that are gone, too."""
        return any(begun.is_set() for begun in self._begun)

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
        for cancel in self._cancels.values():
            cancel()

    def arm_next(self, fault: Fault, point: Point) -> None:
        """Have the next connection that is accepted get a fault; those after it get none."""
        self._next = fault, point

    def lift(self) -> None:
        """End every fault."""
        self._next = None
        for connection in self.connections:
            connection.lift()

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
                    # A slice is a segment: the kernel must not gather them.
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._start(Carried(AsyncClient(accepted)))

    def _start(self, connection: Carried) -> None:
        armed, self._next = self._next, None
        if armed is not None:
            connection.arm(*armed)

        def over() -> None:
            self.connections.remove(connection)
            del self._cancels[connection]
            with suppress(OSError):
                connection.ends[End.CLIENT].reset()

        self.connections.append(connection)
        self._begun.append(connection.begun)
        self._cancels[connection] = self._scope.start(self._carry(connection), over)

    def target(self) -> int:
        """Return the port to which the next connection leads."""
        return self.target_port

    async def _carry(self, connection: Carried) -> None:
        await self.flows.wait()
        await connection.carry(self.target())


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
