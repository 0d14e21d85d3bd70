"""Put the proxy together and take it down: the only file that constructs limiter, metrics and server.

The `apply_*` methods put a changed configuration in force, one part each; `proxy.reload` knows which key needs which.
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final

from limiter.semaphore import AsyncSemaphore
from protocol.proxy_header import ProxyHeader, encode
from protocol.slabs import SlabPool
from proxy import limits
from proxy.auth.client_authentication import RoleFinder
from proxy.broker_pool import BrokerPool
from proxy.brokers.discovery import Brokers
from proxy.brokers.names import Names
from proxy.budget import worst_case_bytes
from proxy.charging import Charging
from proxy.client_connection import ClientConnection
from proxy.client_requests import RequestServices
from proxy.client_services import ClientServices
from proxy.config import Config
from proxy.control import ControlSocket, open_control
from proxy.counters import Counters, LimiterMetrics
from proxy.dialer import Dialer
from proxy.direct_mode import DirectMode
from proxy.errors import DisconnectCause
from proxy.hangup import HangupWatcher
from proxy.identities import make_identities
from proxy.list_questions import HeapBooks, ListQuestions
from proxy.list_sizes import ListSizes
from proxy.live import Live
from proxy.log import Logger
from proxy.log_level import LogLevel
from proxy.lookups import LookupService
from proxy.metrics import MetricSources, ProxyMetrics
from proxy.process_memory import container_limit_bytes
from proxy.pump import Pump
from proxy.refusals import RefusalLog
from proxy.relay_log import RelayLog
from proxy.schemas import SchemaService
from proxy.send_buffers import SendBuffers
from proxy.server import Listener
from proxy.sessions import Sessions
from proxy.shutdown import Phase
from proxy.target import BrokerAddress, TargetValidator
from proxy.tasks import TaskScope
from proxy.tls.arrivals import Arrival, Arrivals
from proxy.tls.brokers import BrokerTls
from proxy.tls.files import TlsFiles
from proxy.tls.transport import TlsShared
from proxy.top.document import TopSources, top_document
from proxy.top.rates import Rates
from proxy.topic_lists import OUTCOMES, TopicListService
from proxy.transport import SharedReadBuffer
from proxy.turns import Turns
from proxy.usage import UsageBook
from proxy.version import VERSION
from proxy.web.broker_ports import BrokerPorts, is_loopback
from proxy.web.clients import Guard
from proxy.web.pages import PageTable, Readiness, document_page, own_pages
from proxy.web.port import WebParts, WebPort, start_web
from proxy.web.settings import web_limits
from proxy.write_watch import WriteWatch

TICK_SECONDS: Final = 1.0
COLLECT_SECONDS: Final = 60
COLLECT_AT_LAST_SECONDS: Final = 600
# Questions to the system's resolver at a time: libuv has four threads for all of them.
CLIENT_NAMES_AT_ONCE: Final = 3
BROKER_NAMES_AT_ONCE: Final = 1


class Proxy:
    """One proxy on the running loop: `start`, then `stop`."""

    def __init__(
        self,
        config: Config,
        log: Logger,
        role_finder: RoleFinder | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.pending: Mapping[str, str] = {}
        self.phase = Phase.SERVING
        self._log = log
        self._loop = loop
        self.counters = Counters(DisconnectCause, OUTCOMES, self._report)
        self.identities = make_identities(config, loop, self.counters, log, role_finder)
        self.usage = UsageBook(loop, names=self.identities.names)
        self.refusals = RefusalLog(log, loop, names=self.identities.names)
        self._rates = Rates()
        self.log_level = LogLevel(log, loop, config.log_level)
        self.relay_log = RelayLog(log, loop.time, int(config.proxy_log_level))
        self._sizes = ListSizes(limits.first_estimate(config))
        self.readiness = Readiness()
        self.heap_waits = LimiterMetrics(loop.time)
        self.direct_waits = LimiterMetrics(loop.time)
        self.limiter = limits.limiter(config, loop, self.heap_waits, self.direct_waits)
        self._slabs = SlabPool(limits.spare_slabs(config))
        self.shared = SharedReadBuffer(config.relay_buffer_bytes)
        self.hangup = HangupWatcher(loop)
        self.pump = Pump(loop, perf_counter)
        self.turns = Turns(loop, perf_counter)
        self._charging = Charging(config.topic_list_fairness)
        self.sessions = Sessions(loop, self.counters, log, limits.session_limits(config))
        self._options = limits.socket_options(config)
        self.tls_files = TlsFiles(config, self.counters, log)
        self._tls_shared = TlsShared(Turns(loop, perf_counter), config.relay_buffer_bytes)
        broker_tls = (
            BrokerTls(loop, self._tls_shared, self.tls_files.broker_client, self.counters)
            if config.tls_enabled_with_broker
            else None
        )
        connect_seconds = config.broker_proxy_connect_timeout_ms / 1000
        self._dialer = Dialer(loop, self._options, connect_seconds, broker_tls)
        request_options = replace(self._options, receive_buffer_bytes=config.broker_socket_receive_buffer_bytes)
        self._names = self._resolver(CLIENT_NAMES_AT_ONCE)
        self._validator = TargetValidator(
            config.broker_proxy_allowed_host_names,
            config.broker_proxy_allowed_ip_addresses,
            config.broker_proxy_allowed_target_ports,
            self._names,
        )
        self._web_validator = TargetValidator(
            config.broker_proxy_allowed_host_names,
            config.broker_proxy_allowed_ip_addresses,
            config.broker_web_service_allowed_target_ports,
            self._names,
        )
        version = limits.header_version(config)
        # Connections that no client owns say so.
        preamble = encode(ProxyHeader(), version) if version else b""
        self._request_dialer = Dialer(loop, request_options, connect_seconds, broker_tls, preamble)
        own_names = self._resolver(BROKER_NAMES_AT_ONCE)
        self.brokers = Brokers(loop, limits.broker_settings(config), own_names, self._dialer, self.counters, log)
        self.pool = BrokerPool(
            loop,
            self._request_dialer,
            self._resolve,
            self.shared,
            self.hangup,
            self.turns,
            self.counters,
            log,
            limits.pool_limits(config),
            self.identities.introductions,
            self.brokers,
        )
        self.watch_limits = limits.watch_limits(config, self.limiter.direct, self.counters)
        self._questions = ListQuestions(
            loop,
            self.pool,
            self.brokers,
            self.limiter,
            self.heap_waits,
            self._slabs,
            self.counters,
            limits.list_limits(config),
        )
        self.writes = WriteWatch(
            self.limiter.direct,
            self._questions,
            self._waiters_served,
            self.counters,
            limits.write_limits(config),
            log,
        )
        self.live = Live(self, log, self.log_level, self.relay_log, self.sessions.all_relays, self._shown)
        self._metric_sources = self._sources()
        self._services = self._client_services()
        headers = config.ha_proxy_protocol_enabled
        self._listener = Listener(
            loop, self.sessions, self.counters, log, self._options, self._new_client, proxy_headers=headers
        )
        self._arrivals = self._tls_arrivals() if config.service_port_tls is not None else None
        self._tls_listener = Listener(
            loop,
            self.sessions,
            self.counters,
            log,
            self._options,
            self._new_client,
            self._arrivals,
            proxy_headers=headers,
        )
        self._scope = TaskScope(lambda error: self.counters.internal_error(error, "clock"))
        self._web: WebPort | None = None
        self._broker_listeners: list[Listener] = []
        self._broker_arrivals: list[Arrivals] = []
        self._control: ControlSocket | None = None
        self.port = 0
        self.tls_port = 0
        self.counters.broker_connection_states = self.pool.states
        self.counters.broker_member_states = self.brokers.states
        self.counters.broker_names = lambda: Counter(self._names.outcomes) + Counter(own_names.outcomes)
        self.counters.budget_bytes = worst_case_bytes(config)
        self.counters.config_applied_at = time.time()
        self._started_at = self._collected_at = loop.time()

    @property
    def web_port(self) -> int:
        """Give the web server's port; 0 until it is started."""
        return 0 if self._web is None else self._web.port

    async def start(self) -> None:
        """Listen on both ports; raises OSError if one of them cannot be had."""
        config = self.config
        self.port = self._listener.open(config.bind_address, config.service_port, config.accept_backlog)
        if config.service_port_tls is not None:
            self.tls_port = self._tls_listener.open(config.bind_address, config.service_port_tls, config.accept_backlog)
            self._log.info("listening for clients with tls", host=config.bind_address, tls_port=self.tls_port)
        self.tls_files.start()
        self._scope.start(self._tick())
        self.identities.start()
        self.brokers.start()
        self.readiness.listening = True
        self._log.info("listening for clients", host=config.bind_address, port=self.port, version=VERSION)
        self._control = await open_control(
            self._loop,
            config.control_socket_path,
            self.port,
            self.live.answers(),
            self._log,
            lambda error: self.counters.internal_error(error, "control"),
        )
        metrics = ProxyMetrics(config.cluster_name, self._metric_sources)
        self._web = await start_web(self._web_parts(metrics.render))
        self._log.info("listening for http", host=config.bind_address, web_port=self._web.port)
        self._note_budget()

    def enter(self, phase: Phase, *, ready: bool) -> None:
        """Hear how far the end of the proxy is, and whether readiness probes are still to succeed."""
        self.phase = phase
        self.readiness.draining = not ready

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Stop accepting, let requests under way end until the drain is over, and close everything.

        Without `drain_seconds` it takes `shutdownDrainMillis` at most.
        """
        if self.phase is not Phase.CLOSING:
            self.enter(Phase.DRAINING, ready=False)
        for listener in (self._listener, self._tls_listener, *self._broker_listeners):
            await listener.close()
        millis = self.config.shutdown_drain_millis
        await self.sessions.drain(millis / 1000 if drain_seconds is None else drain_seconds)
        await self._services.requests.topic_lists.close()
        await self.pool.close()
        await self.identities.close()
        await self.brokers.close()
        await self._names.close()
        self.close_control()
        await self.tls_files.close()
        for arrivals in (self._arrivals, *self._broker_arrivals):
            if arrivals is not None:
                await arrivals.close()
        self._scope.cancel()
        await self._scope.emptied()
        if self._web is not None:
            await self._web.close()
        self.log_level.end()
        self.limiter.close()
        self.hangup.close()
        self.pump.close()

    def close_control(self) -> None:
        """Remove the control socket, also after a start or a drain that was cut short."""
        if self._control is not None:
            self._control.close()

    async def _resolve(self, broker: BrokerAddress) -> list[str]:
        # The operator's own broker needs no permission; a redirect may lead only where clients may go.
        return await (self.brokers.resolve(broker) if broker in self.brokers else self._validator.resolve(broker))

    def _resolver(self, at_once: int) -> Names:
        def crashed(error: BaseException) -> None:
            self.counters.internal_error(error, "names")

        return Names(self._loop, self.config.broker_dns_ttl_seconds, at_once, crashed)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._loop.time()
            self.sessions.tick(now)
            self.pool.tick(now)
            self._slabs.trim()
            self._collect_cycles(now)
            await self.writes.sweep(now)
            self.refusals.flush()
            self.relay_log.tick(now)
            self._rates.tick(now, self.counters.list_outcomes)

    def _collect_cycles(self, now: float) -> None:
        """Have the garbage collector look at everything now and then, if it can be when no list is under way."""
        quiet = not len(self.pump) and not len(self.turns)
        if now - self._collected_at >= (COLLECT_SECONDS if quiet else COLLECT_AT_LAST_SECONDS):
            self._collected_at = now
            gc.collect()

    def _shown(self) -> Mapping[str, object]:
        """Give what `pulsar-proxy top` shows."""
        return top_document(
            TopSources(
                config=self.config,
                restart_needed=tuple(self.pending),
                metrics=self._metric_sources,
                sessions=self.sessions,
                usage=self.usage,
                refusals=self.refusals,
                rates=self._rates,
                state=self.phase,
                brokers=self.brokers.shown(),
                uptime_seconds=self._loop.time() - self._started_at,
                port=self.port,
            )
        )

    # --- live changes (`proxy.reload` says which key needs which) -----------------------------------

    def take_config(self, config: Config, pending: Mapping[str, str] | None = None) -> None:
        """Keep the configuration in force, and the values that wait for a restart, for human eyes (None: the same)."""
        self.config = config
        if pending is not None:
            self.pending = pending
        self.counters.config_applied_at = time.time()

    def apply_limiter(self, config: Config) -> None:
        """Change limits, queues and timeouts of both memories; what is held stays held."""
        heap, direct = self.limiter.heap, self.limiter.direct
        heap.set_max_queue(config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size)
        direct.set_max_queue(config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size)
        heap.set_timeout(config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis / 1000)
        direct.set_timeout(config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis / 1000)
        heap.set_limit(config.heap_limit_bytes)
        direct.set_limit(config.direct_limit_bytes)
        self._slabs.set_spare(limits.spare_slabs(config))
        limits.share_memory(self.limiter, config)
        self._charging.fairness = config.topic_list_fairness

    def apply_writes(self, config: Config) -> None:
        """Change when clients that do not read are closed."""
        self.writes.limits = limits.write_limits(config)

    def apply_watches(self, config: Config) -> None:
        """Change how watch frames on relayed connections are limited."""
        newer = limits.watch_limits(config, self.limiter.direct, self.counters)
        self.watch_limits.enabled = newer.enabled
        self.watch_limits.max_pause_seconds = newer.max_pause_seconds
        self.watch_limits.longest_hold_seconds = newer.longest_hold_seconds

    def apply_topic_lists(self, config: Config) -> None:
        """Change times and sizes of topic lists."""
        self._sizes.initial_bytes = limits.first_estimate(config)
        self._services.requests.topic_lists.apply(limits.list_limits(config))

    def apply_requests(self, config: Config) -> None:
        """Change times and number of all other requests."""
        seconds = config.topic_list_request_timeout_millis / 1000
        self._services.requests.lookups.apply(config.max_concurrent_lookup_requests, seconds)
        self._services.requests.schemas.apply(seconds)

    def apply_clients(self, config: Config) -> None:
        """Change what a client may do, how many there may be, and their clocks."""
        self._services.limits = limits.client_limits(config)
        self._services.direct_mode.apply(config.broker_proxy_read_timeout_ms / 1000)
        self.sessions.apply(limits.session_limits(config))

    def apply_broker_pool(self, config: Config) -> None:
        """Change number and clocks of request connections, and the time of every new connection to a broker."""
        for dialer in (self._dialer, self._request_dialer):
            dialer.timeout_seconds = config.broker_proxy_connect_timeout_ms / 1000
        self.pool.apply(limits.pool_limits(config))

    def apply_targets(self, config: Config) -> None:
        """Change which addresses clients may reach from now on."""
        self._validator.apply(
            config.broker_proxy_allowed_host_names,
            config.broker_proxy_allowed_ip_addresses,
            config.broker_proxy_allowed_target_ports,
        )
        self._web_validator.apply(
            config.broker_proxy_allowed_host_names,
            config.broker_proxy_allowed_ip_addresses,
            config.broker_web_service_allowed_target_ports,
        )

    def apply_web(self, config: Config) -> None:
        """Change times of what is passed on by the web ports."""
        if self._web is not None:
            self._web.apply(web_limits(config))

    def apply_budget(self, config: Config) -> None:
        """Add the worst case up anew."""
        self.counters.budget_bytes = worst_case_bytes(config)
        self._note_budget()

    def apply_log_level(self, config: Config) -> None:
        """Write lines of another level from now on, or when the level for a while is over."""
        self.log_level.configure(config.log_level)

    def apply_relay_log(self, config: Config) -> None:
        """Show more or less of relays that begin from now on."""
        self.relay_log.set_level(int(config.proxy_log_level))

    # --- parts --------------------------------------------------------------------------------------

    def files_may_have_changed(self) -> None:
        """Look at the files of certificates soon."""
        self.tls_files.look()

    def _new_client(self, address: str, header: ProxyHeader | None, target: str = "") -> ClientConnection:
        return ClientConnection(self._services, address, header, target)

    def _tls_arrivals(self, target: str = "") -> Arrivals:
        def became_client(arrival: Arrival) -> ClientConnection:
            client = self._new_client(arrival.client_address, arrival.header, target)
            self.sessions.became_client(arrival, client)
            return client

        return Arrivals(
            self._loop,
            self._tls_shared,
            self.tls_files.server,
            self.config.max_concurrent_tls_handshakes,
            self.sessions,
            became_client,
            self.counters,
            self._log,
        )

    def _listen_for_broker(self, port: int, broker: BrokerAddress, tls: bool) -> int:
        """Join who comes to `port` to `broker`; raises OSError if the port cannot be had."""
        arrivals = self._tls_arrivals(str(broker)) if tls else None
        listener = Listener(
            self._loop,
            self.sessions,
            self.counters,
            self._log,
            self._options,
            partial(self._new_client, target=str(broker)),
            arrivals,
            proxy_headers=self.config.ha_proxy_protocol_enabled,
        )
        port = listener.open(self.config.bind_address, port, self.config.accept_backlog)
        self._broker_listeners.append(listener)
        if arrivals is not None:
            self._broker_arrivals.append(arrivals)
        return port

    def _pages(self, render_metrics: Callable[[], bytes]) -> PageTable:
        pages = own_pages(self.config.status_file_path, render_metrics, self.readiness)
        for document in self.live.documents():
            pages.add(document_page(document, self.config))
        return pages

    def _web_parts(self, render_metrics: Callable[[], bytes]) -> WebParts:
        config, clients = self.config, self.identities.clients
        return WebParts(
            config=config,
            pages=self._pages(render_metrics),
            direct=self.limiter.direct,
            charging=self._charging,
            refusals=self.refusals,
            usage=self.usage,
            writes=self.writes,
            validator=self._web_validator,
            hangup=self.hangup,
            counters=self.counters,
            log=self._log,
            lookups=BrokerPorts(
                config.http_lookup_ports,
                self._listen_for_broker,
                self._loop.time,
                self._log,
                advertised=config.advertised_address,
                loopback=is_loopback(config.bind_address),
                tls_to_brokers=config.tls_enabled_with_broker,
                tls_ports=config.service_port_tls is not None,
            ),
            guard=Guard(clients) if clients is not None else None,
            own=self.identities.own,
            tls_server=self.tls_files.web,
            tls_client=self.tls_files.broker_client if config.tls_enabled_with_broker else None,
        )

    def _client_services(self) -> ClientServices:
        config, loop, counters = self.config, self._loop, self.counters
        return ClientServices(
            loop=loop,
            shared=self.shared,
            hangup=self.hangup,
            counters=counters,
            limits=limits.client_limits(config),
            direct=self.limiter.direct,
            requests=self._request_services(),
            direct_mode=DirectMode(
                loop,
                self.shared,
                self.hangup,
                counters,
                self._dialer,
                self._validator,
                self.brokers,
                limits.target_rules(config),
                self.identities.introductions,
                config.broker_proxy_read_timeout_ms / 1000,
                self.watch_limits,
                self.relay_log,
            ),
            sessions=self.sessions,
            server_version=self.identities.introductions.versions.server_version,
            writes=self.writes,
            turns=self.turns,
            charging=self._charging,
            send_buffers=SendBuffers(counters),
            authentication=self.identities.clients,
        )

    def _request_services(self) -> RequestServices:
        config, loop, counters = self.config, self._loop, self.counters
        refusals = self.refusals
        request_seconds = config.topic_list_request_timeout_millis / 1000
        lookups = AsyncSemaphore(
            "lookups",
            config.max_concurrent_lookup_requests,
            max_queue=1,
            timeout_seconds=0,
            clock=loop,
        )
        return RequestServices(
            loop=loop,
            counters=counters,
            brokers=self.brokers,
            lookups=LookupService(
                loop,
                self.pool,
                self.brokers,
                lookups,
                counters,
                request_seconds,
                tls=config.tls_enabled_with_broker,
            ),
            topic_lists=TopicListService(
                loop,
                self.limiter,
                self._questions,
                self.pump,
                self.turns,
                self._sizes,
                self._charging,
                counters,
                refusals,
                self.usage,
            ),
            turns=self.turns,
            schemas=SchemaService(
                loop,
                self.pool,
                self.brokers,
                self.limiter,
                self._slabs,
                counters,
                refusals,
                request_seconds,
                self._charging,
            ),
            refusals=refusals,
        )

    def _waiters_served(self) -> int:
        return self.heap_waits.served_waiters + self.direct_waits.served_waiters

    def _sources(self) -> MetricSources:
        heap = HeapBooks(self._questions.heap_statistics)
        return MetricSources(self.counters, heap, self.limiter.direct, self.heap_waits, self.direct_waits)

    def _note_budget(self) -> None:
        budget, container = self.counters.budget_bytes, container_limit_bytes()
        if container is not None and budget > container:
            self._log.warning(
                "the configured limits allow more memory than the container has",
                budget_bytes=budget,
                container_limit_bytes=container,
            )
        else:
            self._log.info("memory budget", budget_bytes=budget, container_limit_bytes=container)

    def _report(self, error: BaseException, where: str) -> None:
        self._log.error("unexpected error", where=where, detail=repr(error), exc_info=error)
