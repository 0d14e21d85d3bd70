"""The web ports of a running proxy: build their parts, listen, close.

Rule: `start_web` imports everything that needs aiohttp in a thread, because that takes longer than the rest of the
start. A request on a web port delays Pulsar traffic by a few milliseconds at most.
"""

import asyncio
import importlib
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from limiter.semaphore import AsyncSemaphore
from proxy.auth.fairness_key import DisplayNames, FairnessKeys
from proxy.auth.own.broker_credentials import BrokerCredentials
from proxy.brokers.target import TargetValidator
from proxy.config.config import Config
from proxy.config.credential_targets import withholds
from proxy.core.log import Logger
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.net.write_watch import WriteLimits, WriteWatch
from proxy.requests.reader_shares import ReaderShares
from proxy.telemetry.events.recorder import Recorder
from proxy.telemetry.heavy_hitters import UsageTracker
from proxy.telemetry.refusals import RefusalLog
from proxy.web.access_log import AccessLog
from proxy.web.forward.broker_ports import BrokerPorts
from proxy.web.forward.headers import Headers, extra_headers
from proxy.web.forward.replay_copies import ReplayCopies
from proxy.web.forward.routes import RouteTable
from proxy.web.forward.settings import WebLimits, WebTargets
from proxy.web.forward.topic_list_permits import TopicListPermits
from proxy.web.http.clients import Guard
from proxy.web.http.counters import WebCounters
from proxy.web.http.gate import Gate
from proxy.web.pages import PageTable

if TYPE_CHECKING:
    import aiohttp

    from proxy.net.tls.streams import TlsStreams
    from proxy.web.accept import HttpListener
    from proxy.web.forward.reverse_proxy import ProxyServices, ReverseProxy
    from proxy.web.forward.websockets import WebSocketTunnels
    from proxy.web.server import Site, _Server

_SLOW_IMPORTS: Final = (
    "aiohttp.web", "prometheus_client", "proxy.web.server", "proxy.web.forward.reverse_proxy",
    "proxy.web.forward.broker_client", "proxy.web.forward.websockets", "proxy.web.accept",
)  # fmt: skip
SHUTDOWN_SECONDS: Final = 1.0
CurrentContext = Callable[[], ssl.SSLContext]


@dataclass(slots=True)
class WebParts:
    """The parts of the proxy that the web ports use."""

    config: Config
    pages: PageTable
    direct: AsyncSemaphore
    shares: ReaderShares
    fairness_keys: FairnessKeys
    refusals: RefusalLog
    usage: UsageTracker
    writes: WriteWatch
    validator: TargetValidator
    hangup: HangupWatcher
    counters: WebCounters
    log: Logger
    lookups: BrokerPorts
    withheld: Callable[[str, str], None]
    loop_budget: LoopBudget
    guard: Guard | None = None
    own: BrokerCredentials | None = None
    tls_server: "TlsStreams | None" = None
    tls_client: CurrentContext | None = None
    names: DisplayNames = field(default_factory=DisplayNames)
    recorder: Recorder | None = None
    # Called once a second, for numbers of the last minutes.
    tick: Callable[[float], None] = lambda now: None


class WebPort:
    """The web server, listening on `port` and `tls_port`; each is None if it is not configured."""

    def __init__(self, parts: WebParts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._limits = WebLimits.of(parts.config)
        self._gate = Gate(self._loop, self._limits.gate, self._rates, parts.log)
        parts.pages.renderings.keep_seconds = self._limits.page_reuse_seconds
        self._listeners: list[HttpListener] = []
        self._server: _Server | None = None
        self._client: aiohttp.ClientSession | None = None
        self._services: ProxyServices | None = None
        self._site: Site | None = None
        self.port: int | None = None
        self.tls_port: int | None = None
        self.tick = parts.tick

    async def start(self) -> None:
        """Listen on `webServicePort` and `webServicePortTls`, if set; raises OSError if an address cannot be bound."""
        from proxy.web.server import Site

        parts, config = self._parts, self._parts.config
        extra = extra_headers(config.proxy_http_response_headers_json)
        reverse_proxy, tunnels = self._passing_on(extra)
        self._site = Site(
            self._limits, parts.pages, RouteTable(WebTargets.of(config).extra), self._gate, parts.counters,
            AccessLog(parts.log, self._loop, parts.names), parts.hangup, guard=parts.guard,
            guard_metrics=config.authenticate_metrics_endpoint,
            forwarding_balancers=self._balancers(config.web_service_trust_x_forwarded_for),
            loop_budget=parts.loop_budget, extra_headers=extra,
            reverse_proxy=reverse_proxy, tunnels=tunnels,
        )  # fmt: skip
        self._server = self._site.server()
        try:
            if config.web_service_port is not None:
                self.port = self._listen(self._server, config.web_service_port, "webServicePort", None)
            if config.web_service_port_tls is not None and parts.tls_server is not None:
                port = config.web_service_port_tls
                self.tls_port = self._listen(self._server, port, "webServicePortTls", parts.tls_server)
            parts.lookups.web_ports = (self.port, self.tls_port)
        except BaseException:
            await self.close()
            raise

    def _listen(self, server: "_Server", port: int, key: str, tls: "TlsStreams | None") -> int:
        from proxy.web.accept import HttpListener

        parts, limits = self._parts, self._limits
        listener = HttpListener(
            server,
            parts.counters,
            limits,
            tls=tls,
            balancers=self._balancers(parts.config.web_service_ha_proxy_protocol_enabled),
        )
        self._listeners.append(listener)
        listener.open(parts.config.web_address, port, key)
        return listener.port

    def _balancers(self, believed: bool) -> TrustedBalancers | None:
        return TrustedBalancers(self._parts.config.trusted_load_balancer_ip_addresses) if believed else None

    def _passing_on(self, extra: Headers) -> "tuple[ReverseProxy | None, WebSocketTunnels | None]":
        from proxy.web.forward.broker_client import ServerConnections, hosts_of, open_client
        from proxy.web.forward.redirects import RedirectRules
        from proxy.web.forward.reverse_proxy import ProxyServices, ReverseProxy
        from proxy.web.forward.websockets import WebSocketTunnels

        parts, targets = self._parts, WebTargets.of(self._parts.config)
        if not targets.any:
            return None, None
        hosts = hosts_of(targets.urls)
        self._client = open_client(self._limits, hosts, parts.validator, targets.dns_seconds)
        list_permits = TopicListPermits(
            parts.direct, parts.shares, parts.fairness_keys, parts.refusals, parts.usage, parts.counters, self._loop,
            self._limits.most_asked_lists, parts.recorder,
        )  # fmt: skip
        copies = ReplayCopies(parts.direct, parts.counters, self._loop.call_soon)
        self._services = ProxyServices(
            self._loop, self._limits, copies, parts.fairness_keys, parts.counters, parts.writes, list_permits,
            parts.lookups, parts.own, parts.tls_client, extra, parts.log,
            ServerConnections(self._loop, self._rates, parts.log), parts.withheld, parts.loop_budget,
        )  # fmt: skip
        known = (*targets.brokers, *targets.function_workers)
        rules = RedirectRules(known, parts.validator, targets.third_parties, withholds=withholds(parts.config))
        proxy = ReverseProxy(self._client, targets, rules, self._services)
        return proxy, WebSocketTunnels(proxy, self._services, parts.guard)

    def _rates(self) -> WriteLimits:
        return self._parts.writes.limits

    def apply(self, config: Config) -> None:
        """Apply changed limits to new requests; requests in progress keep theirs."""
        limits = self._limits = WebLimits.of(config)
        self._gate.apply(limits.gate)
        if self._services is not None:
            self._services.limits = limits
            self._services.list_permits.apply(limits.most_asked_lists)
        if self._site is not None:
            self._site.limits = limits
        self._parts.pages.renderings.keep_seconds = limits.page_reuse_seconds

    async def close(self) -> None:
        """Stop listening and end all connections, within two seconds."""
        for listener in self._listeners:
            await listener.close()
        if self._parts.tls_server is not None:
            await self._parts.tls_server.close()
        if self._server is not None:
            await self._server.shutdown(SHUTDOWN_SECONDS)
        await self._parts.pages.renderings.close()
        if self._client is not None:
            await self._client.close()
        # Transports close their sockets in the next iteration of the loop.
        await asyncio.sleep(0)


async def start_web(parts: WebParts) -> WebPort:
    """Import what needs aiohttp, then listen on the web ports; raises OSError if an address cannot be bound."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as importer:
        for name in _SLOW_IMPORTS:
            await loop.run_in_executor(importer, importlib.import_module, name)
    port = WebPort(parts)
    await port.start()
    return port
