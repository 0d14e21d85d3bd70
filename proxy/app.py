"""Put the proxy together, run it, and take it down: the only file that constructs limiter, metrics and server."""

import asyncio
import gc
import resource
import signal
from dataclasses import replace
from time import perf_counter
from typing import Final

from limiter.dual import AsyncDualMemoryLimiter
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.slabs import SLAB_BYTES, SlabPool
from protocol.topic_list import ANSWER_OVERHEAD_BYTES
from proxy.broker_connection import BrokerClocks
from proxy.broker_pool import BrokerPool, PoolLimits
from proxy.budget import worst_case_bytes
from proxy.charging import Charging
from proxy.client_connection import ClientConnection, ClientLimits, ClientServices
from proxy.client_requests import RequestServices
from proxy.config import Config
from proxy.counters import Counters, LimiterMetrics
from proxy.dialer import Dialer, SocketOptions
from proxy.direct_mode import DirectMode, Versions
from proxy.errors import DisconnectCause
from proxy.hangup import HangupWatcher
from proxy.list_questions import ListQuestions, TopicListLimits
from proxy.list_sizes import ListSizes
from proxy.log import Logger
from proxy.lookups import LookupService
from proxy.metrics import MetricSources, ProxyMetrics
from proxy.process_memory import container_limit_bytes
from proxy.pump import Pump
from proxy.refusals import RefusalLog
from proxy.schemas import SchemaService
from proxy.send_buffers import SendBuffers
from proxy.server import Listener
from proxy.sessions import SessionLimits, Sessions
from proxy.target import BrokerAddress, TargetValidator, resolve
from proxy.tasks import TaskScope
from proxy.topic_lists import OUTCOMES, TopicListService
from proxy.transport import SharedReadBuffer
from proxy.turns import Turns
from proxy.version import VERSION
from proxy.watch_limits import WatchLimits
from proxy.web import Readiness, WebPort, start_web
from proxy.write_watch import WriteLimits, WriteWatch

NAME: Final = f"pulsar-proxy-sidecar-{VERSION}"
TICK_SECONDS: Final = 1.0
MOST_SPARE_SLABS: Final = 64


class Proxy:
    """One proxy on the running loop: `start`, then `stop`."""

    def __init__(self, config: Config, log: Logger) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self._log = log
        self._loop = loop
        self.readiness = Readiness()
        self.counters = Counters(DisconnectCause, OUTCOMES, self._report)
        self.heap_waits = LimiterMetrics(loop.time)
        self.direct_waits = LimiterMetrics(loop.time)
        self.limiter = _limiter(config, loop, self.heap_waits, self.direct_waits)
        self.writes = WriteWatch(
            self.limiter.direct, lambda: self.direct_waits.served_waiters, self.counters, _write_limits(config)
        )
        self._slabs = SlabPool(_spare_slabs(config))
        self.shared = SharedReadBuffer(config.relay_buffer_bytes)
        self.hangup = HangupWatcher(loop)
        self.pump = Pump(loop, perf_counter)
        self.turns = Turns(loop, perf_counter)
        self._charging = Charging(config.topic_list_fairness)
        self.sessions = Sessions(loop, self.counters, log, _session_limits(config))
        self._options = _socket_options(config)
        self._broker = BrokerAddress(*config.broker_address)
        connect_seconds = config.broker_proxy_connect_timeout_ms / 1000
        self._dialer = Dialer(loop, self._options, connect_seconds)
        request_options = replace(self._options, receive_buffer_bytes=config.broker_socket_receive_buffer_bytes)
        self._validator = TargetValidator(
            config.broker_proxy_allowed_host_names,
            config.broker_proxy_allowed_ip_addresses,
            config.broker_proxy_allowed_target_ports,
        )
        self.pool = BrokerPool(
            loop,
            Dialer(loop, request_options, connect_seconds),
            self._resolve,
            self.shared,
            self.hangup,
            self.counters,
            log,
            _pool_limits(config),
        )
        self.watch_limits = _watch_limits(config, self.limiter.direct, self.counters)
        self._services = self._client_services()
        self._listener = Listener(loop, self.sessions, self.counters, log, self._options, self._new_client)
        self._scope = TaskScope(lambda error: self.counters.internal_error(error, "clock"))
        self._web: WebPort | None = None
        self.port = 0
        self.counters.broker_connection_states = self.pool.states
        self.counters.budget_bytes = worst_case_bytes(config)

    @property
    def web_port(self) -> int:
        """Give the web server's port; 0 until it is started."""
        return 0 if self._web is None else self._web.port

    async def start(self) -> None:
        """Listen on both ports; raises OSError if one of them cannot be had."""
        config = self._config
        self.port = self._listener.open(config.bind_address, config.service_port, config.accept_backlog)
        self._scope.start(self._tick())
        self.readiness.listening = True
        self._log.info("listening for clients", host=config.bind_address, port=self.port, version=VERSION)
        self._web = await start_web(config, self._metrics().render, self.readiness)
        self._log.info("listening for http", host=config.bind_address, web_port=self._web.port)
        self._note_budget()

    async def stop(self) -> None:
        """Stop accepting, let requests under way end until `shutdownDrainMillis`, and close everything."""
        self.readiness.draining = True
        await self._listener.close()
        await self.sessions.drain(self._config.shutdown_drain_millis / 1000)
        await self._services.requests.topic_lists.close()
        await self.pool.close()
        self._scope.cancel()
        await self._scope.emptied()
        if self._web is not None:
            await self._web.close()
        self.limiter.close()
        self.hangup.close()
        self.pump.close()

    async def _resolve(self, broker: BrokerAddress) -> list[str]:
        # The operator's own broker needs no permission; a redirect may lead only where clients may go.
        return await (resolve(broker) if broker == self._broker else self._validator.resolve(broker))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._loop.time()
            self.sessions.tick(now)
            self.pool.tick(now)
            self._slabs.trim()
            await self.writes.sweep(now)

    def _new_client(self, address: str) -> ClientConnection:
        return ClientConnection(self._services, address)

    def _client_services(self) -> ClientServices:
        config, loop, counters = self._config, self._loop, self.counters
        versions = Versions(proxy_version=NAME, server_version=f"-{NAME}")
        return ClientServices(
            loop=loop,
            shared=self.shared,
            hangup=self.hangup,
            counters=counters,
            limits=_client_limits(config),
            direct=self.limiter.direct,
            requests=self._request_services(),
            direct_mode=DirectMode(
                loop,
                self.shared,
                self.hangup,
                counters,
                self._dialer,
                self._validator,
                self._broker,
                versions,
                config.broker_proxy_read_timeout_ms / 1000,
                self.watch_limits,
            ),
            sessions=self.sessions,
            server_version=versions.server_version,
            writes=self.writes,
            turns=self.turns,
            send_buffers=SendBuffers(counters),
        )

    def _request_services(self) -> RequestServices:
        config, loop, counters = self._config, self._loop, self.counters
        refusals = RefusalLog(self._log, loop)
        request_seconds = config.topic_list_request_timeout_millis / 1000
        lookups = AsyncSemaphore(
            "lookups",
            config.max_concurrent_lookup_requests,
            max_queue=1,
            timeout_seconds=0,
            clock=loop,
        )
        questions = ListQuestions(loop, self.pool, self.limiter, self._slabs, counters, _list_limits(config))
        sizes = ListSizes(config.topic_list_initial_heap_permit_bytes + ANSWER_OVERHEAD_BYTES)
        return RequestServices(
            loop=loop,
            counters=counters,
            broker=self._broker,
            lookups=LookupService(loop, self.pool, lookups, counters, request_seconds),
            topic_lists=TopicListService(
                loop, self.limiter, questions, self.pump, self.turns, sizes, self._charging, counters, refusals
            ),
            schemas=SchemaService(loop, self.pool, self.limiter, self._slabs, counters, refusals, request_seconds),
        )

    def _metrics(self) -> ProxyMetrics:
        sources = MetricSources(
            self.counters, self.limiter.heap, self.limiter.direct, self.heap_waits, self.direct_waits
        )
        return ProxyMetrics(self._config.cluster_name, sources)

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


async def run(config: Config, log: Logger) -> None:
    """Run a proxy until SIGTERM or SIGINT; a second signal ends the drain at once."""
    _raise_file_limit(log)
    proxy = Proxy(config, log)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await proxy.start()
    # What start-up made lives as long as the process: the collector need not look at it in the middle of a storm.
    gc.collect()
    gc.freeze()
    await stopping.wait()
    log.info("stopping", connections=len(proxy.sessions))
    stopping.clear()
    await _stop_or_be_told_again(proxy, stopping)
    log.info("stopped")


async def _stop_or_be_told_again(proxy: Proxy, told_again: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        stop = group.create_task(proxy.stop())
        again = group.create_task(told_again.wait())
        await asyncio.wait((stop, again), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        again.cancel()


def _raise_file_limit(log: Logger) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("file descriptors", limit=hard)


def _limiter(
    config: Config, loop: asyncio.AbstractEventLoop, heap: LimiterMetrics, direct: LimiterMetrics
) -> AsyncDualMemoryLimiter:
    return AsyncDualMemoryLimiter.create(
        heap_limit_bytes=config.heap_limit_bytes,
        heap_max_queue=config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size,
        heap_timeout_seconds=config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis / 1000,
        direct_limit_bytes=config.direct_limit_bytes,
        direct_max_queue=config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size,
        direct_timeout_seconds=config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis / 1000,
        clock=loop,
        heap_observer=heap,
        direct_observer=direct,
    )


def _spare_slabs(config: Config) -> int:
    """Size the pool of free slabs: small beside the limits, so that memory nobody holds stays within their slack."""
    limits = config.heap_limit_bytes + config.direct_limit_bytes
    if not (config.heap_limit_bytes and config.direct_limit_bytes):
        return MOST_SPARE_SLABS
    return min(MOST_SPARE_SLABS, limits // 32 // SLAB_BYTES)


def _session_limits(config: Config) -> SessionLimits:
    return SessionLimits(
        total=config.max_concurrent_inbound_connections,
        per_address=config.max_concurrent_inbound_connections_per_ip,
        handshake_seconds=config.handshake_timeout_millis / 1000,
        keep_alive_seconds=config.keep_alive_interval_seconds,
        read_timeout_seconds=config.broker_proxy_read_timeout_ms / 1000,
    )


def _watch_limits(config: Config, direct: AsyncSemaphore, counters: Counters) -> WatchLimits:
    return WatchLimits(
        direct,
        counters,
        window_bytes=config.relay_buffer_bytes,
        enabled=config.watch_topic_list_limit_enabled,
        max_pause_seconds=config.watch_topic_list_max_pause_millis / 1000,
        longest_hold_seconds=config.topic_list_request_timeout_millis / 1000,
    )


def _write_limits(config: Config) -> WriteLimits:
    return WriteLimits(
        stall_seconds=config.topic_list_write_stall_timeout_millis / 1000,
        min_bytes_per_second=config.topic_list_write_min_bytes_per_second,
    )


def _socket_options(config: Config) -> SocketOptions:
    return SocketOptions(
        keep_alive_idle_seconds=config.tcp_keep_alive_idle_seconds,
        keep_alive_interval_seconds=config.tcp_keep_alive_interval_seconds,
        keep_alive_probes=config.tcp_keep_alive_probes,
        user_timeout_millis=config.tcp_user_timeout_millis,
    )


def _pool_limits(config: Config) -> PoolLimits:
    return PoolLimits(
        per_key=config.broker_connections_per_key,
        total=config.broker_connections_total,
        clocks=BrokerClocks(
            keep_alive_seconds=config.keep_alive_interval_seconds,
            answer_timeout_seconds=config.topic_list_broker_answer_timeout_millis / 1000,
            idle_seconds=config.broker_connection_idle_millis / 1000,
        ),
        connect_frame=commands.connect_lookup(NAME),
    )


def _list_limits(config: Config) -> TopicListLimits:
    return TopicListLimits(
        request_timeout_seconds=config.topic_list_request_timeout_millis / 1000,
        max_answer_bytes=config.topic_list_answer_limit_bytes,
        max_outstanding_per_broker=config.topic_list_max_outstanding_per_broker,
        coalescing=config.topic_list_coalescing_enabled,
    )


def _client_limits(config: Config) -> ClientLimits:
    return ClientLimits(
        max_frame_bytes=config.max_lookup_frame_bytes,
        max_message_bytes=config.max_message_size,
        max_outstanding=config.max_outstanding_requests_per_connection,
        send_buffer_bytes=config.client_socket_send_buffer_bytes,
        frame_seconds=config.topic_list_request_timeout_millis / 1000,
        keep_alive=config.keep_alive_interval_seconds > 0,
    )
