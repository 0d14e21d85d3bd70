"""Own the web ports of a proxy without the rest of it, and raw requests to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from limiter.semaphore import AsyncSemaphore
from proxy.auth.fairness_key import FairnessKeys
from proxy.brokers.target import TargetValidator
from proxy.config.config import Config
from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.write_watch import WriteWatch
from proxy.requests.reader_shares import ReaderShares
from proxy.telemetry.heavy_hitters import UsageTracker
from proxy.telemetry.refusals import RefusalLog
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
        "webServicePageReuseMillis": "0",
    }
    given |= overrides
    return Config.load(overrides=given)


def web_parts(
    settings: Config, readiness: Readiness, hangup: HangupWatcher, render: Callable[[], bytes] = bytes
) -> WebParts:
    """Make everything that the web ports need, with books of its own."""
    loop = asyncio.get_running_loop()
    log = open_log("error")
    counters = Counters(lambda error, where: None)
    direct = AsyncSemaphore("direct", 100 << 20, max_queue=100, timeout_seconds=5, clock=loop)
    return WebParts(
        config=settings,
        pages=own_pages(settings.status_file_path, lambda: [render()], readiness),
        direct=direct,
        shares=ReaderShares(direct),
        fairness_keys=FairnessKeys("fifo"),
        refusals=RefusalLog(log, loop),
        usage=UsageTracker(loop),
        writes=WriteWatch(core_of(config=settings, counters=counters, log=log), direct, direct, lambda: 0),
        validator=TargetValidator(("*",), ("*",), ("8080",)),
        hangup=hangup,
        counters=counters,
        log=log,
        lookups=BrokerPorts(
            (), lambda port, broker, tls: 0, loop.time, log,
            advertised="", loopback=False, tls_to_brokers=False, plain_ports=True,
            tls_ports=False,
        ),
        withheld=lambda target, path: None,
        loop_budget=LoopBudget(loop, loop.time),
    )  # fmt: skip


@asynccontextmanager
async def running(render: Callable[[], bytes] = lambda: b"a_metric 1.0\n", **overrides: str) -> AsyncIterator[Running]:
    """Serve until the block ends."""
    readiness, hangup = Readiness(), HangupWatcher(asyncio.get_running_loop())
    readiness.listening = True
    parts = web_parts(config(**overrides), readiness, hangup, render)
    port = await start_web(parts)
    try:
        yield Running(port, parts, readiness)
    finally:
        await port.close()
        hangup.close()
