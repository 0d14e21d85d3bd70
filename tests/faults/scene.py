"""Own what a cell of the matrix happens in: a proxy whose clients and brokers are behind fault proxies.

Rule: a scene knows no stage and no fault. What goes through `client_way`, `broker_way` and `own_way` may be struck;
the neighbour goes past the first and the last.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from proxy.app import proxy as app
from proxy.brokers.clocks import ANSWER_SECONDS
from proxy.config.config import Config
from proxy.telemetry.events import topic_sink
from proxy.web import server as web_server
from tests.faults.flows.flow import CLIENT_SIDE, Flow
from tests.support.auth.credentials import Court, Judge, presenting
from tests.support.auth.tls import PemFiles, server_context, tls_broker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.brokers.raw_broker import handshake, raw_broker
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.faults.proxy import FaultProxy
from tests.support.patience import patient, patient_millis
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import Stage, open_files, staged, tasks_of_the_proxy

TOPICS: Final = 1000
NAME_BYTES: Final = 100
SHORTER: Final = 50
# A turn of the proxy's clock, and keep-alive in turns; the default is 30 turns of a second.
TICK_SECONDS: Final = 0.05
KEEP_ALIVE_TICKS: Final = 12
HANDSHAKE_MILLIS: Final = 1000
HTTP_MILLIS: Final = 600
EVENTS_SECONDS: Final = 1
READ_BYTES: Final = 64 * 1024
PROCESS: Final = psutil.Process()


def short_clocks() -> dict[str, int]:
    """Return the proxy's clocks in their proportions, so much shorter that a test can wait for each of them."""
    shorter = (
        "brokerProxyReadTimeoutMs",
        "topicListRequestTimeoutMillis",
        "topicListWriteStallTimeoutMillis",
    )
    declared = Config.keys()
    return {
        **{key.name: patient_millis(key.default // SHORTER) for key in declared if key.name in shorter},
        # Everybody shakes hands under these, the neighbour, too; no other clock races with them.
        **dict.fromkeys(("brokerProxyConnectTimeoutMs", "handshakeTimeoutMillis"), patient_millis(HANDSHAKE_MILLIS)),
        "keepAliveIntervalSeconds": KEEP_ALIVE_TICKS,
        # Five minutes, and no other clock for an exchange over HTTP.
        "httpProxyTimeout": patient_millis(HTTP_MILLIS),
    }


@dataclass
class Scene:
    """A proxy, the broker behind it, and the ways that a fault may strike."""

    stage: Stage
    client_way: FaultProxy
    broker_way: FaultProxy
    own_way: FaultProxy
    echo_port: int
    files: PemFiles
    court: Court | None = None
    clients: list[AsyncClient] = field(default_factory=list)

    def way(self, side: str, *, own: bool) -> FaultProxy:
        """Give the way on a side of a flow."""
        if side == CLIENT_SIDE:
            return self.client_way
        return self.own_way if own else self.broker_way

    @property
    def struck(self) -> bool:
        """Tell whether a fault has begun."""
        return any(way.struck for way in (self.client_way, self.broker_way, self.own_way))

    def hello(self, target: str | None = None, who: str = "alice") -> bytes:
        """Build the CONNECT of a client that the proxy lets in."""
        return connect_frame(target) if self.court is None else presenting(who, target=target)

    async def client(self, port: int | None = None) -> AsyncClient:
        """Open a connection to the proxy through the clients' way, or to a port."""
        client = await AsyncClient.open(self.client_way.port if port is None else port)
        self.clients.append(client)
        return client

    async def connected(self, port: int | None = None, target: str | None = None) -> AsyncClient:
        """Open such a connection and shake hands."""
        client = await self.client(port)
        await client.send(self.hello(target))
        answer = await client.answer(pong=True)
        assert answer.HasField("connected"), answer
        return client

    def leave(self) -> None:
        """Close the connections of the flow."""
        for client in self.clients:
            client.close()
        self.clients.clear()

    @property
    def http_connections(self) -> int:
        """Count the connections of the web port, where the flow's clients come to it."""
        port = self.stage.proxy.web_port
        if self.client_way.target_port != port:
            return 0
        return sum(bool(one.raddr) and one.laddr.port == port for one in PROCESS.net_connections("tcp"))

    def books(self) -> dict[str, int]:
        """Give what must be as before when a flow is over: permits, places, sessions, pairs, tasks, descriptors."""
        stage, carried = self.stage, (*self.broker_way.connections, *self.own_way.connections)
        native = stage.proxy.relay_engines.native
        return {
            **stage.books(),
            "pairs of threads": 0 if native is None else len(native),
            "requests over HTTP": counted(stage.proxy.counters, "http_requests_in_work"),
            "tunnels": counted(stage.proxy.counters, "http_tunnels"),
            "HTTP connections": self.http_connections,
            "tasks": len([name for name in tasks_of_the_proxy() if not name.startswith("EmbeddedBroker")]),
            "internal errors": sum(counted_by(stage.proxy.counters, "internal_errors").values()),
            # A connection to a broker that others may use has the proxy's socket, two of its way, and the broker's.
            "descriptors": len(open_files()) - sum(len(one.ends) for one in carried) * 2,
        }


def proxys_own(books: dict[str, int]) -> dict[str, int]:
    """Give what belongs to the proxy alone: a fault proxy and a test may still have descriptors."""
    return {name: value for name, value in books.items() if name != "descriptors"}


@contextmanager
def ticking(*, short: bool) -> Iterator[None]:
    """Let the proxy's clock go round faster than once a second, and idle HTTP connections end as soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "TICK_SECONDS", patient(TICK_SECONDS))
        if short:
            patch.setattr(web_server, "IDLE_SECONDS", patient(web_server.IDLE_SECONDS / SHORTER))
            patch.setattr(topic_sink, "SEND_SECONDS", round(patient(EVENTS_SECONDS)))
            patch.setattr(topic_sink, "OPERATION_SECONDS", round(patient(EVENTS_SECONDS)))
        yield


async def echo(peer: AsyncClient) -> None:
    """Shake hands, and give every byte back."""
    await handshake(peer)
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await loop.sock_recv(peer.sock, READ_BYTES):
            await loop.sock_sendall(peer.sock, data)


async def echo_over_tls(peer: Any) -> None:
    """Do the same over TLS."""
    await handshake(peer)
    while True:
        await peer.send(await peer.some(READ_BYTES))


@asynccontextmanager
async def scene(flow: Flow, directory: Path, *, short: bool) -> AsyncIterator[Scene]:
    """Run a proxy for one flow; at the end the stage's own check finds nothing of it."""
    keys: dict[str, Any] = short_clocks() if short else {}
    files = PemFiles.write(directory / "pem")
    if flow.tls:
        keys |= files.server_keys | files.broker_keys
    judge = Judge() if flow.authenticated else None
    keys |= {"authenticationEnabled": "true"} if judge is not None else {}
    async with AsyncExitStack() as stack:
        stack.enter_context(ticking(short=short))
        ways = [FaultProxy() for _ in range(3)]
        for way in ways:
            stack.push_async_callback(way.close)
        client_way, broker_way, own_way = ways
        echoing = await stack.enter_async_context(tls_broker(echo_over_tls) if flow.tls else raw_broker(echo))
        own_way.target_port = await stack.enter_async_context(flow.server())
        url = f"{'pulsar+ssl' if flow.tls else 'pulsar'}://127.0.0.1:{broker_way.port}"
        service = {"brokerServiceURLTLS" if flow.tls else "brokerServiceURL": url}
        stage = await stack.enter_async_context(
            staged(
                GeneratedTopics(20, TOPICS, NAME_BYTES),
                role_finder=judge,
                broker_tls=server_context() if flow.tls else None,
                **{**keys, **service, **flow.keys(own_way)},
            )
        )
        broker_way.target_port = stage.broker.port
        if short:
            stage.give_up_after(patient(ANSWER_SECONDS / SHORTER))
        at = Scene(stage, client_way, broker_way, own_way, echoing.port, files)
        if judge is not None:
            at.court = Court(stage, judge)
            court = at.court
            court.authentication.now = lambda: court.now
        if not own_way.target_port:
            own_way.target_port = stage.broker.port
        client_way.target_port = flow.port(at)
        try:
            yield at
        finally:
            at.leave()
            for way in ways:
                way.cut()
            for peer in echoing.peers:
                peer.close()
