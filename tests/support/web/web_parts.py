"""Own the web ports of a proxy without the rest of it, and raw requests to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from proxy.auth.fairness_key import DisplayNames
from proxy.brokers.side import BrokerSide
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import TargetValidator
from proxy.clients.accepting import Accepting
from proxy.config.config import Config
from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.net.hangup import HangupWatcher
from proxy.net.listen.listening import ListeningSockets
from proxy.requests.topic_lists.memory import ListMemory
from proxy.telemetry.events.reports import Reports
from proxy.web.forward.broker_ports import BrokerPorts
from proxy.web.pages import own_pages
from proxy.web.port import WebParts, WebPort, start_web
from proxy.web.readiness import Readiness
from tests.support.cores import core_of
from tests.support.web.web_pages import Page, get, raw


@dataclass
class Running:
    """Web ports, and requests to the plain one."""

    port: WebPort
    parts: WebParts
    readiness: Readiness

    async def raw(self, request: bytes) -> bytes:
        assert self.port.port is not None
        return await raw(self.port.port, request)

    async def get(self, path: str, method: str = "GET", *headers: str) -> Page:
        assert self.port.port is not None
        return await get(self.port.port, path, method, *headers)


def config(**overrides: str) -> Config:
    """Load a configuration whose ports are free ones."""
    given = {
        "brokerServiceURL": "pulsar://broker",
        "bindAddress": "127.0.0.1",
        "webServicePort": "0",
        "topicListFairness": "fifo",
        "topicListUnprovenReadersMemoryPercent": "100",
    }
    given |= overrides
    return Config.load(overrides=given)


def web_parts(
    settings: Config, readiness: Readiness, hangup: HangupWatcher, render: Callable[[], bytes] = bytes
) -> WebParts:
    """Make everything that the web ports need, with books of its own."""
    loop = asyncio.get_running_loop()
    core = core_of(config=settings, counters=Counters(lambda error, where: None), clock=loop.time)
    side = SimpleNamespace(
        web_validator=TargetValidator(("*",), ("*",), ("8080",)),
        gate=SimpleNamespace(withheld=lambda target, path: None),
        own=None,
        tls_client=None,
    )
    lookups = BrokerPorts(
        (), lambda port, broker, tls: 0, loop.time, core.log,
        advertised="", loopback=False, tls_to_brokers=False, plain_ports=True,
        tls_ports=False,
    )  # fmt: skip
    return WebParts(
        core,
        cast(Sockets, SimpleNamespace(hangup=hangup, listening=ListeningSockets())),
        ListMemory(core),
        cast(BrokerSide, side),
        Reports(core, DisplayNames()),
        own_pages(settings.status_file_path, lambda: [render()], readiness),
        lookups,
    )


@asynccontextmanager
async def running(render: Callable[[], bytes] = lambda: b"a_metric 1.0\n", **overrides: str) -> AsyncIterator[Running]:
    """Serve until the block ends."""
    loop = asyncio.get_running_loop()
    readiness, hangup = Readiness(loop.time, Accepting(loop, open_log("error"))), HangupWatcher(loop)
    readiness.listening = True
    parts = web_parts(config(**overrides), readiness, hangup, render)
    port = await start_web(parts)
    try:
        yield Running(port, parts, readiness)
    finally:
        await port.close()
        hangup.close()
