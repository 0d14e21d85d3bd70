"""The web ports of a running proxy: build their parts, listen, close.

Rule: `start_web` imports everything that needs aiohttp in a thread, because that takes longer than the rest of the
start. A request on a web port delays Pulsar traffic by a few milliseconds at most.
"""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.brokers.side import BrokerSide
from proxy.brokers.sockets import Sockets
from proxy.config.core import Core
from proxy.net.listen.listening import PortPurpose, port_of
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.net.write_watch import WriteLimits
from proxy.requests.topic_lists.memory import ListMemory
from proxy.telemetry.events.reports import Reports
from proxy.web.access_log import AccessLog
from proxy.web.forward.broker_ports import BrokerPorts
from proxy.web.forward.gate import Gate
from proxy.web.forward.headers import Headers, extra_headers
from proxy.web.forward.replay_copies import ReplayCopies
from proxy.web.forward.routes import RouteTable
from proxy.web.forward.settings import METRICS_CONNECTIONS, WebLimits, WebTargets
from proxy.web.forward.topic_list_permits import TopicListPermits
from proxy.web.http.clients import Guard
from proxy.web.pages import METRICS_PAGES, PageTable

if TYPE_CHECKING:
    import aiohttp

    from proxy.net.tls.streams import TlsStreams
    from proxy.web.accept import HttpListener
    from proxy.web.connection import HttpServer
    from proxy.web.forward.reverse_proxy import ProxyServices, ReverseProxy
    from proxy.web.forward.websockets import WebSocketTunnels
    from proxy.web.server import Site

_SLOW_IMPORTS: Final = (
    "aiohttp.web", "prometheus_client", "proxy.web.server", "proxy.web.forward.reverse_proxy",
    "proxy.web.forward.broker_client", "proxy.web.forward.websockets", "proxy.web.accept",
)  # fmt: skip
SHUTDOWN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WebParts:
    """The parts of the proxy that the web ports use; `guard` is None if clients need not authenticate.

    `lookups`: the ports that lookups over HTTP lead to. `tick` is called once a second, for numbers of the last
    minutes.
    """

    core: Core
    sockets: Sockets
    memory: ListMemory
    side: BrokerSide
    reports: Reports
    pages: PageTable
    lookups: BrokerPorts
    guard: Guard | None = None
    tick: Callable[[float], None] = lambda now: None


class WebPort:
    """The web server on `port` and `tls_port`, and that of `metrics_port`; each is None if it is not configured."""

    def __init__(self, parts: WebParts) -> None:
        self._parts = parts
        self._loop, self._log = parts.core.loop, parts.core.log.of("web")
        self._limits = WebLimits.of(parts.core.config)
        self._gate = Gate(self._loop, self._limits.gate, self._rates, self._log)
        self._listeners: list[HttpListener] = []
        self._servers: list[HttpServer] = []
        self._client: aiohttp.ClientSession | None = None
        self._services: ProxyServices | None = None
        self._sites: list[Site] = []
        self._tls: TlsStreams | None = None
        self.port: int | None = None
        self.tls_port: int | None = None
        self.metrics_port: int | None = None
        self.tick = parts.tick

    async def start(self) -> None:
        """Listen on the ports that are set; raises OSError if an address cannot be bound."""
        parts, config = self._parts, self._parts.core.config
        hosts = config.web_addresses
        try:
            if config.web_service_port is not None or config.web_service_port_tls is not None:
                # As in the Java proxy, the key turns off /metrics here, too; `metricsPort` has it all the same.
                pages = parts.pages if config.enable_proxy_stats_endpoints else parts.pages.without("/metrics")
                server = self._served(pages, self._limits, passes_on=True)
                if config.web_service_port is not None:
                    self.port = self._listen(server, self._limits, hosts, config.web_service_port, "webServicePort")
                if config.web_service_port_tls is not None:
                    port, tls = config.web_service_port_tls, self._tls_streams()
                    self.tls_port = self._listen(server, self._limits, hosts, port, "webServicePortTls", tls)
                parts.lookups.web_ports = (self.port, self.tls_port)
            if config.metrics_port is not None:
                # Connections of its own: clients of the web ports never keep a probe or a monitor out.
                small = self._limits.buffer_bytes // 2
                limits = replace(self._limits, max_connections=METRICS_CONNECTIONS, send_buffer_bytes=small)
                server = self._served(parts.pages.only(METRICS_PAGES), limits, passes_on=False)
                hosts = config.metrics_addresses
                self.metrics_port = self._listen(server, limits, hosts, config.metrics_port, "metricsPort")
        except BaseException:
            await self.close()
            raise
        self._log_ports()

    def _tls_streams(self) -> "TlsStreams":
        # Only a port with TLS needs this.
        from proxy.net.tls.streams import TlsStreams

        core, sockets = self._parts.core, self._parts.sockets
        places, current = core.config.max_concurrent_tls_handshakes, sockets.tls_files.web
        self._tls = TlsStreams(
            core.loop, sockets.tls, sockets.shared, current, places, core.counters, core.log.of("net")
        )
        return self._tls

    def _log_ports(self) -> None:
        config, log = self._parts.core.config, self._log
        host = ",".join(config.web_addresses)
        if self.port is not None:
            log.info("listening for http", host=host, web_port=self.port)
        if self.tls_port is not None:
            log.info("listening for https", host=host, web_tls_port=self.tls_port)
        if self.metrics_port is not None:
            log.info("listening for metrics", host=",".join(config.metrics_addresses), metrics_port=self.metrics_port)

    def _served(self, pages: PageTable, limits: WebLimits, *, passes_on: bool) -> "HttpServer":
        """Return a server for some pages; `passes_on`: other requests go to brokers."""
        from proxy.web.server import Site

        parts, config = self._parts, self._parts.core.config
        extra = extra_headers(config.proxy_http_response_headers_json)
        reverse_proxy, tunnels = self._passing_on(extra) if passes_on else (None, None)
        routes = RouteTable(WebTargets.of(config).extra if passes_on else ())
        site = Site(
            limits, pages, routes, self._gate, parts.core.counters,
            AccessLog(self._log, self._loop, parts.reports.names), parts.sockets.hangup, guard=parts.guard,
            guard_metrics=config.authenticate_metrics_endpoint,
            forwarding_balancers=self._balancers(config.web_service_trust_x_forwarded_for),
            loop_budget=parts.core.loop_budget, extra_headers=extra,
            reverse_proxy=reverse_proxy, tunnels=tunnels,
        )  # fmt: skip
        self._sites.append(site)
        self._servers.append(site.server())
        return self._servers[-1]

    def _listen(
        self,
        server: "HttpServer",
        limits: WebLimits,
        hosts: Sequence[str],
        port: int,
        key: str,
        tls: "TlsStreams | None" = None,
    ) -> int:
        from proxy.web.accept import BACKLOG, HttpListener, bound_buffers

        parts = self._parts
        prepare = partial(bound_buffers, limits=limits)
        opened = parts.sockets.listening.listen(hosts, port, PortPurpose(key), BACKLOG, prepare)
        for listening in opened:
            balancers = self._balancers(parts.core.config.web_service_ha_proxy_protocol_enabled)
            listener = HttpListener(server, parts.core.counters, limits, tls=tls, balancers=balancers)
            self._listeners.append(listener)
            listener.adopt(listening)
        return port_of(opened[0])

    @property
    def waiting(self) -> int:
        """Return how many requests wait for one of `maxConcurrentHttpRequests` places."""
        return self._gate.waiting

    def stop_accepting(self) -> None:
        """Leave newcomers to the process that has taken over, and end connections that ask for nothing more."""
        for listener in self._listeners:
            listener.stop_accepting()
        for server in self._servers:
            server.end_idle()

    def _balancers(self, believed: bool) -> TrustedBalancers | None:
        return TrustedBalancers(self._parts.core.config.trusted_load_balancer_ip_addresses) if believed else None

    def _passing_on(self, extra: Headers) -> "tuple[ReverseProxy | None, WebSocketTunnels | None]":
        from proxy.web.forward.broker_client import ServerConnections, hosts_of, open_client
        from proxy.web.forward.redirects import RedirectRules
        from proxy.web.forward.reverse_proxy import ProxyServices, ReverseProxy
        from proxy.web.forward.websockets import WebSocketTunnels

        parts, core, memory, side = self._parts, self._parts.core, self._parts.memory, self._parts.side
        targets, direct = WebTargets.of(core.config), memory.limiter.direct
        if not targets.any:
            return None, None
        hosts = hosts_of(targets.urls)
        self._client = open_client(
            self._limits, hosts, side.web_validator, core.config.broker_dns_ttl_seconds, core.loop_budget
        )
        list_permits = TopicListPermits(
            direct, memory.unproven.shares, memory.fairness_keys, parts.reports.refusals, parts.reports.usage,
            core.counters, core.loop, self._limits.most_asked_lists, parts.reports.recorder,
        )  # fmt: skip
        copies = ReplayCopies(direct, core.counters, core.loop.call_soon)
        self._services = ProxyServices(
            core.loop, self._limits, copies, memory.fairness_keys, core.counters, memory.writes, list_permits,
            parts.lookups, side.own, side.tls_client, extra, self._log,
            ServerConnections(core.loop, self._rates, self._log), side.gate.withheld, core.loop_budget,
        )  # fmt: skip
        known = (*targets.brokers, *targets.function_workers)
        to_any = core.config.broker_proxy_credentials_to_any_target
        rules = RedirectRules(known, side.web_validator, targets.third_parties, to_any_target=to_any)
        proxy = ReverseProxy(self._client, targets, rules, self._services)
        return proxy, WebSocketTunnels(proxy, self._services, parts.guard)

    def _rates(self) -> WriteLimits:
        return self._parts.memory.writes.limits

    def apply(self, limits: WebLimits) -> None:
        """Apply changed limits to new requests; requests in progress keep theirs."""
        self._limits = limits
        self._gate.apply(limits.gate)
        if self._services is not None:
            self._services.limits = limits
            self._services.list_permits.apply(limits.most_asked_lists)
        for site in self._sites:
            site.limits = limits

    async def close(self) -> None:
        """Stop listening and end all connections, within two seconds."""
        for listener in self._listeners:
            await listener.close()
        if self._tls is not None:
            await self._tls.close()
        for server in self._servers:
            await server.shutdown(SHUTDOWN_SECONDS)
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
