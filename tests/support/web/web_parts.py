"""Own the web ports of a proxy without the rest of it, and raw requests to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from proxy.app.web_side import reverse_proxy
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
from proxy.web.port import WebPort
from proxy.web.readiness import Readiness
from tests.support.cores import core_of
from tests.support.web.web_pages import Page, get, raw


@dataclass
class Running:
    """Web ports, and requests to the plain one."""

    port: WebPort
    readiness: Readiness
    counters: Counters

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


def web_port(
    settings: Config, counters: Counters, readiness: Readiness, hangup: HangupWatcher, render: Callable[[], bytes]
) -> WebPort:
    """Make the web ports and everything that they need."""
    loop = asyncio.get_running_loop()
    core = core_of(config=settings, counters=counters, clock=loop.time)
    side = SimpleNamespace(
        web_validator=TargetValidator(("*",), ("*",), ("8080",)),
        gate=SimpleNamespace(withheld=lambda target, path: None),
        own=None,
        tls_client=None,
    )
    lookups = BrokerPorts(core, lambda port, broker, tls: 0)
    sockets = cast(Sockets, SimpleNamespace(hangup=hangup, listening=ListeningSockets()))
    memory, reports = ListMemory(core), Reports(core, DisplayNames())
    pages = own_pages(settings.status_file_path, lambda: [render()], readiness)
    passes_on = reverse_proxy(core, memory, cast(BrokerSide, side), reports, lookups)
    return WebPort(core, sockets, memory, reports, pages, passes_on)


@asynccontextmanager
async def running(
    render: Callable[[], bytes] = lambda: b"a_metric 1.0\n", *, ready: bool = True, **overrides: str
) -> AsyncIterator[Running]:
    """Serve until the block ends; without `ready` the ports for clients are not open yet."""
    loop = asyncio.get_running_loop()
    readiness, hangup = Readiness(loop.time, Accepting(loop, open_log("error"))), HangupWatcher(loop)
    if ready:
        readiness.opened()
    counters = Counters(lambda error, where: None)
    port = web_port(config(**overrides), counters, readiness, hangup, render)
    await port.start()
    try:
        yield Running(port, readiness, counters)
    finally:
        await port.close()
        hangup.close()
