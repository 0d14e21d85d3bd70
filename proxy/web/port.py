"""The web ports of a running proxy: build their parts, listen, close.

Rule: nothing that needs aiohttp is imported with this module: `proxy.app.proxy` imports it in a thread, because that
takes longer than the rest of the start. A request on a web port delays Pulsar traffic by a few milliseconds at most.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.brokers.sockets import Sockets
from proxy.config.core import Core
from proxy.net.listen.listening import PortPurpose, port_of
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.requests.topic_lists.memory import ListMemory
from proxy.telemetry.events.reports import Reports
from proxy.web.access_log import AccessLog
from proxy.web.forward.gate import Gate
from proxy.web.forward.settings import METRICS_CONNECTIONS, WebLimits
from proxy.web.pages import METRICS_PAGES, PageTable

if TYPE_CHECKING:
    from proxy.net.tls.streams import TlsStreams
    from proxy.web.accept import HttpListener
    from proxy.web.connection import HttpServer
    from proxy.web.forward.reverse_proxy import ReverseProxy
    from proxy.web.server import Site

SHUTDOWN_SECONDS: Final = 1.0


class WebPort:
    """The web server on `port` and `tls_port`, and that of `metrics_port`; each is None if it is not configured."""

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        memory: ListMemory,
        reports: Reports,
        pages: PageTable,
        reverse_proxy: "ReverseProxy | None",
    ) -> None:
        self._core = core
        self._sockets = sockets
        self._pages = pages
        self._reverse_proxy = reverse_proxy
        self._loop, self._log = core.loop, core.log.of("web")
        self._names = reports.names
        self._limits = WebLimits.of(core.config)
        self._gate = Gate(core.loop, self._limits.gate, lambda: memory.writes.limits, self._log)
        self._listeners: list[HttpListener] = []
        self._servers: list[HttpServer] = []
        self._sites: list[Site] = []
        self._tls: TlsStreams | None = None
        self.port: int | None = None
        self.tls_port: int | None = None
        self.metrics_port: int | None = None

    async def start(self) -> None:
        """Listen on the ports that are set; raises OSError if an address cannot be bound."""
        config = self._core.config
        hosts = config.web_addresses
        try:
            if config.web_service_port is not None or config.web_service_port_tls is not None:
                # As in the Java proxy, the key turns off /metrics here, too; `metricsPort` has it all the same.
                pages = self._pages if config.enable_proxy_stats_endpoints else self._pages.without("/metrics")
                server = self._served(pages, self._limits, self._reverse_proxy)
                if config.web_service_port is not None:
                    self.port = self._listen(server, self._limits, hosts, config.web_service_port, "webServicePort")
                if config.web_service_port_tls is not None:
                    port, tls = config.web_service_port_tls, self._tls_streams()
                    self.tls_port = self._listen(server, self._limits, hosts, port, "webServicePortTls", tls)
                if self._reverse_proxy is not None:
                    self._reverse_proxy.web_opened(self.port, self.tls_port)
            if config.metrics_port is not None:
                # Connections of its own: clients of the web ports never keep a probe or a monitor out.
                small = self._limits.buffer_bytes // 2
                limits = replace(self._limits, max_connections=METRICS_CONNECTIONS, send_buffer_bytes=small)
                server = self._served(self._pages.only(METRICS_PAGES), limits)
                hosts = config.metrics_addresses
                self.metrics_port = self._listen(server, limits, hosts, config.metrics_port, "metricsPort")
        except BaseException:
            await self.close()
            raise
        self._log_ports()

    def _tls_streams(self) -> "TlsStreams":
        # Only a port with TLS needs this.
        from proxy.net.tls.streams import TlsStreams

        sockets = self._sockets
        self._tls = TlsStreams(self._core, sockets.tls, sockets.shared, sockets.tls_files.web)
        return self._tls

    def _log_ports(self) -> None:
        config, log = self._core.config, self._log
        host = ",".join(config.web_addresses)
        if self.port is not None:
            log.info("listening for http", host=host, web_port=self.port)
        if self.tls_port is not None:
            log.info("listening for https", host=host, web_tls_port=self.tls_port)
        if self.metrics_port is not None:
            log.info("listening for metrics", host=",".join(config.metrics_addresses), metrics_port=self.metrics_port)

    def _served(self, pages: PageTable, limits: WebLimits, reverse_proxy: "ReverseProxy | None" = None) -> "HttpServer":
        """Return a server for some pages; other requests go to brokers by the reverse proxy."""
        from proxy.web.server import Site

        access = AccessLog(self._log, self._loop, self._names)
        site = Site(self._core, pages, self._gate, access, self._sockets.hangup, reverse_proxy)
        self._sites.append(site)
        self._servers.append(site.server(limits))
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

        core, prepare = self._core, partial(bound_buffers, limits=limits)
        opened = self._sockets.listening.listen(hosts, port, PortPurpose(key), BACKLOG, prepare)
        believed = TrustedBalancers(core.config.trusted_load_balancer_ip_addresses)
        balancers = believed if core.config.web_service_ha_proxy_protocol_enabled else None
        for listening in opened:
            listener = HttpListener(server, core.counters, limits, tls=tls, balancers=balancers)
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

    def apply(self, limits: WebLimits) -> None:
        """Apply changed limits to new requests; requests in progress keep theirs."""
        self._limits = limits
        self._gate.apply(limits.gate)
        if self._reverse_proxy is not None:
            self._reverse_proxy.apply(limits)
        for site in self._sites:
            site.apply(limits)

    async def close(self) -> None:
        """Stop listening and end all connections, within two seconds."""
        for listener in self._listeners:
            await listener.close()
        if self._tls is not None:
            await self._tls.close()
        for server in self._servers:
            await server.shutdown(SHUTDOWN_SECONDS)
        await self._pages.renderings.close()
        if self._reverse_proxy is not None:
            await self._reverse_proxy.close()
        # Transports close their sockets in the next iteration of the loop.
        await asyncio.sleep(0)
