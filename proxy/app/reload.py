"""Read the configuration again while the proxy runs, and apply the keys that may change (SIGHUP).

`LiveChanges` changes single keys, for the admin API.

Rule: all or nothing. A configuration with a fault changes nothing, and every fault is logged with file, line and key.
`APPLIED_BY` lists each dynamic key with the parts that it changes. The whole change is one step of the event loop, so
that no request sees half of it. Keys that need a restart keep their value until then.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from proxy.app import reload_steps as steps
from proxy.app.lifecycle import Phase
from proxy.app.metrics.counters import CONFIG_ACCEPTED, CONFIG_RELOADS
from proxy.app.reload_steps import LiveParts
from proxy.config.config import Config, ConfigError
from proxy.config.keys.authentication import AUTHENTICATION
from proxy.config.keys.brokers import TARGETS
from proxy.config.keys.key import Key
from proxy.config.keys.tls import TLS
from proxy.config.page import pending_values
from proxy.core.counters import Counters
from proxy.core.errors import ProxyError
from proxy.core.log import Logger
from proxy.core.tasks import TaskScope
from proxy.core.threads import NoThread, in_thread
from proxy.web.admin.reload_report import KeyChange, ReloadReport

LoadConfig = Callable[[], Config]
Step = Callable[[LiveParts, Config], None]

READ_SECONDS: Final = 10.0
REFUSED: Final = "configuration refused, the old one stays in force"
_LIMITER: Final[tuple[Step, ...]] = (steps.apply_limiter,)
# The largest answer depends on the smaller limit, and a single broker may use half the heap limit.
_MEMORY: Final[tuple[Step, ...]] = (
    steps.apply_limiter,
    steps.apply_topic_lists,
    steps.apply_budget,
)
_BROKERS: Final[tuple[Step, ...]] = (steps.apply_broker_pool,)
_TARGETS: Final[tuple[Step, ...]] = (steps.apply_targets,)
_WEB: Final[tuple[Step, ...]] = (steps.apply_web,)

# Parts are applied in the order of this table, each once: the limiter before the parts that read its limits.
APPLIED_BY: Final[dict[Key[Any], tuple[Step, ...]]] = {
    Config.log_level: (steps.apply_log_level,),
    Config.log_level_by_component: (steps.apply_log_level,),
    Config.connection_log_percent: (steps.apply_connection_log,),
    Config.proxy_log_level: (steps.apply_relay_log, steps.apply_budget),
    Config.max_topic_list_in_flight_heap_mem_size_mb: _MEMORY,
    Config.max_topic_list_in_flight_direct_mem_size_mb: _MEMORY,
    Config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis: (
        steps.apply_limiter,
        steps.apply_topic_lists,
    ),
    Config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis: _LIMITER,
    Config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size: (
        steps.apply_limiter,
        steps.apply_topic_lists,
        steps.apply_budget,
    ),
    Config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size: (
        steps.apply_limiter,
        steps.apply_budget,
    ),
    Config.topic_list_request_timeout_millis: (
        steps.apply_topic_lists,
        steps.apply_requests,
        steps.apply_clients,
        steps.apply_watches,
    ),
    Config.topic_list_max_answer_bytes: (steps.apply_topic_lists, steps.apply_budget),
    Config.topic_list_max_outstanding_per_broker: (steps.apply_topic_lists, *_WEB),
    Config.topic_list_coalescing_enabled: (steps.apply_topic_lists,),
    Config.topic_list_shared_by: (steps.apply_topic_lists,),
    Config.topic_list_fairness: (
        steps.apply_limiter,
        steps.apply_topic_lists,
        steps.apply_spill,
        steps.apply_budget,
    ),
    Config.topic_list_max_memory_percent_per_key: (steps.apply_limiter, steps.apply_topic_lists, steps.apply_spill),
    Config.topic_list_unproven_readers_memory_percent: (steps.apply_limiter, steps.apply_topic_lists),
    Config.topic_list_write_stall_timeout_millis: (steps.apply_writes,),
    Config.topic_list_write_min_bytes_per_second: (steps.apply_writes,),
    Config.topic_list_spill_max_mb: (steps.apply_spill, steps.apply_topic_lists),
    Config.watch_topic_list_limit_enabled: (steps.apply_watches,),
    Config.max_concurrent_lookup_requests: (steps.apply_requests, steps.apply_budget),
    Config.max_concurrent_inbound_connections: (steps.apply_clients, steps.apply_budget),
    Config.max_concurrent_inbound_connections_per_ip: (steps.apply_clients,),
    Config.handshake_timeout_millis: (steps.apply_clients,),
    Config.max_handshake_in_flight_mem_size_mb: (steps.apply_clients, steps.apply_budget),
    Config.client_socket_send_buffer_bytes: (steps.apply_clients, steps.apply_budget),
    Config.client_socket_send_memory_mb: (steps.apply_clients, steps.apply_budget),
    Config.keep_alive_interval_seconds: (steps.apply_clients, steps.apply_broker_pool),
    Config.broker_proxy_read_timeout_ms: (steps.apply_clients,),
    Config.broker_proxy_connect_timeout_ms: _BROKERS,
    Config.topic_list_broker_answer_timeout_millis: _BROKERS,
    Config.broker_connections_total: (steps.apply_broker_pool, steps.apply_budget),
    Config.broker_proxy_allowed_host_names: _TARGETS,
    Config.broker_proxy_allowed_ip_addresses: _TARGETS,
    Config.broker_proxy_allowed_target_ports: _TARGETS,
    Config.broker_web_service_allowed_target_ports: _TARGETS,
    Config.http_proxy_timeout: _WEB,
    Config.web_service_page_reuse_millis: _WEB,
    Config.web_service_allowed_hosts: _WEB,
    Config.web_service_allowed_origins: _WEB,
    Config.http_requests_limit_enabled: _WEB,
    Config.http_requests_max_per_second: _WEB,
    Config.max_concurrent_http_requests: (*_WEB, steps.apply_budget),
    Config.overload_signals: (steps.apply_overload, steps.apply_budget),
    Config.overload_sample_millis: (steps.apply_overload,),
    Config.overload_throttle_enabled: (steps.apply_overload, steps.apply_budget),
    Config.overload_throttle_observe_only: (steps.apply_overload, steps.apply_budget),
    Config.overload_memory_high_watermark: (steps.apply_overload,),
    Config.overload_memory_low_watermark: (steps.apply_overload,),
    Config.overload_drip_millis: (steps.apply_overload,),
    Config.overload_max_pause_millis: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_enabled: (steps.apply_overload, steps.apply_budget),
    Config.adaptive_publisher_throttling_observe_only: (steps.apply_overload, steps.apply_budget),
    Config.adaptive_publisher_throttling_interval_ms: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_memory_high_watermark_pct: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_memory_low_watermark_pct: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_backlog_high_watermark_pct: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_backlog_low_watermark_pct: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_backlog_limit_bytes: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_min_rate_factor: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_max_rate_change_factor: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_topics: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_except_topics: (steps.apply_overload,),
    Config.adaptive_publisher_throttling_per_topic_metrics_enabled: (steps.apply_overload,),
    # The shutdown reads these keys from the configuration in force.
    Config.shutdown_pre_drain_millis: (),
    Config.shutdown_drain_millis: (),
}

# Dynamic keys that only the sources of the configuration change.
NOT_LIVE_SECTIONS: Final = frozenset({TARGETS, AUTHENTICATION, TLS})
NOT_LIVE: Final[frozenset[Key[Any]]] = frozenset({Config.web_service_allowed_hosts, Config.web_service_allowed_origins})


class Reloadable(Protocol):
    """A proxy as far as a reload sees it."""

    config: Config
    phase: Phase

    @property
    def pending(self) -> Mapping[str, str]:
        """Shown values that wait for a restart, by key."""

    @property
    def counters(self) -> Counters:
        """Where reloads and internal errors are counted."""

    @property
    def live_parts(self) -> LiveParts:
        """The parts that a change of live keys reaches."""

    def take_config(self, config: Config, pending: Mapping[str, str] | None = None) -> None:
        """Replace the configuration in force, and what waits for a restart (None: unchanged)."""

    def files_may_have_changed(self) -> None:
        """Check the files of certificates soon."""


def apply(proxy: Reloadable, newer: Config, log: Logger) -> ReloadReport:
    """Apply the dynamic keys of `newer`, log every difference, and return the report.

    Raises ConfigError, before any change. A part that fails is an internal error; the other parts are applied anyway.
    """
    old = proxy.config
    differing = list(old.differences(newer))
    config = old.adopt(newer)
    proxy.take_config(config, pending_values(config, newer))
    changed = [key for key in differing if key.dynamic]
    parts = proxy.live_parts
    for step in _steps(changed):
        try:
            step(parts, config)
        except Exception as error:
            proxy.counters.internal_error(error, "reload")
    report = ReloadReport(
        "applied",
        changed=tuple(KeyChange(key.name, _shown(key, old), _shown(key, config)) for key in changed),
        needs_restart=tuple(
            KeyChange(key.name, _shown(key, old), _shown(key, newer)) for key in differing if not key.dynamic
        ),
        warnings=tuple(map(str, newer.warnings)),
    )
    for change in report.changed:
        log.info("configuration changed", key=change.key, old=change.old, new=change.new)
    for change in report.needs_restart:
        log.warning("a change needs a restart", key=change.key, old=change.old, new=change.new)
    return report


def _steps(changed: Iterable[Key[Any]]) -> list[Step]:
    keys = set(changed)
    return list(dict.fromkeys(step for key, each in APPLIED_BY.items() if key in keys for step in each))


def _shown(key: Key[Any], config: Config) -> str:
    return key.shown(config.value(key))


class LiveChanges:
    """Changes of single dynamic keys by the admin API, some of which end after a time.

    A reload ends all of them: it puts the values of the sources in force. Keys that say whom clients may reach or who
    may see the pages do not change in this way: a client of the admin API should not widen them without a trace in the
    configuration.
    """

    def __init__(self, proxy: Reloadable, log: Logger) -> None:
        self._proxy = proxy
        self._log = log
        # The end of each change that has one, and the configuration before it.
        self._ends: dict[str, tuple[asyncio.TimerHandle, Config]] = {}

    def set(self, name: str, text: str, seconds: float | None) -> KeyChange:
        """Change a key for `seconds`, or until the next reload if None; raise ConfigError."""
        proxy, old = self._proxy, self._proxy.config
        key = next((key for key in APPLIED_BY if key.name == name), None)
        if key is not None and (key in NOT_LIVE or key.section in NOT_LIVE_SECTIONS or key.secret):
            raise ConfigError([old.live_fault(key, text, "a change in the configuration, and a reload")], [])
        newer = old.replace({name: text})
        assert key is not None
        before = old
        if (ending := self._ends.pop(name, None)) is not None:
            ending[0].cancel()
            # A reload since then is the state to return to.
            before = ending[1] if old.origin(key) == "live" else old
        self._take(newer)
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._end, key)
            self._ends[name] = timer, before
        return KeyChange(name, _shown(key, old), _shown(key, proxy.config))

    def close(self) -> None:
        """Forget the ends of all changes."""
        for timer, _ in self._ends.values():
            timer.cancel()
        self._ends.clear()

    def _end(self, key: Key[Any]) -> None:
        _, before = self._ends.pop(key.name)
        if self._proxy.config.origin(key) != "live" or self._proxy.phase is Phase.CLOSING:
            return
        try:
            self._take(self._proxy.config.with_source_of(key, before))
        except ConfigError as error:
            self._log.error("a live change could not be taken back", key=key.name, detail=str(error))
            return
        self._log.warning("a live change has ended", key=key.name, new=_shown(key, self._proxy.config))

    def _take(self, newer: Config) -> None:
        pending = self._proxy.pending
        apply(self._proxy, newer, self._log)
        self._proxy.take_config(self._proxy.config, pending)


class ConfigUnreadable(ProxyError):
    """The sources of the configuration were not read in time."""


class ReloadListener(Protocol):
    """Called at each reload."""

    def reload_began(self) -> None:
        """Called when a reload begins."""

    def reload_ended(self, result: str) -> None:
        """Called when a reload ends; `result` is applied, refused or ignored."""


class Reloader:
    """Runs one reload at a time; a request during a reload starts another reload after it."""

    def __init__(
        self, proxy: Reloadable, load: LoadConfig, log: Logger, listener: ReloadListener | None = None
    ) -> None:
        self._listener = listener
        self._proxy = proxy
        self._load = load
        self._log = log
        self._scope = TaskScope(lambda error: proxy.counters.internal_error(error, "reload"))
        self._asked = False
        self._running = False
        # Callers that wait for the report of the next reload.
        self._waiters: list[asyncio.Future[ReloadReport]] = []

    async def reload(self) -> ReloadReport:
        """Reload, and return the report of a reload that began after this call."""
        if self._stopping():
            return ReloadReport("ignored", reason="the proxy is stopping")
        waiter: asyncio.Future[ReloadReport] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.ask()
        return await waiter

    def ask(self) -> None:
        """Start a reload soon; do nothing while the proxy is stopping."""
        if self._stopping():
            return
        self._proxy.files_may_have_changed()
        self._asked = True
        if not self._running:
            self._running = True
            self._scope.start(self._work())

    async def close(self) -> None:
        """Cancel a reload in progress."""
        self._scope.cancel()
        await self._scope.emptied()

    async def _work(self) -> None:
        try:
            while self._asked:
                self._asked = False
                waiters, self._waiters = self._waiters, []
                try:
                    await self._reload_and_report(waiters)
                finally:
                    # The waiters of a cancelled reload must not wait forever.
                    for waiter in waiters:
                        waiter.cancel()
        finally:
            # Cleared in the same step as the check above, so that a later `ask` starts a new task.
            self._running = False

    async def _reload_and_report(self, waiters: list[asyncio.Future[ReloadReport]]) -> None:
        if self._listener is not None:
            self._listener.reload_began()
        report = await self._reload()
        if self._listener is not None:
            self._listener.reload_ended(report.result)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(report)

    async def _reload(self) -> ReloadReport:
        reloads = self._proxy.counters[CONFIG_RELOADS]
        try:
            newer = await self._read()
            if self._stopping():
                return ReloadReport("ignored", reason="the proxy is stopping")
            report = apply(self._proxy, newer, self._log)
        except ConfigError as error:
            self._refuse(error)
            failed = ReloadReport(
                "refused",
                faults=error.problems,
                warnings=tuple(map(str, error.warnings)),
                reason=f"{REFUSED}: {len(error.problems)} faults",
            )
        except Exception as error:
            self._log.error(REFUSED, detail=str(error))
            failed = ReloadReport("refused", reason=f"{REFUSED}: {error}")
            if not isinstance(error, ConfigUnreadable):
                self._proxy.counters.internal_error(error, "reload")
        else:
            reloads["applied"] += 1
            self._proxy.counters[CONFIG_ACCEPTED].value = 1.0
            for warning in newer.warnings:
                self._log.warning("configuration", detail=str(warning))
            self._log.info("configuration reloaded", keys=list(self._proxy.pending))
            return report
        reloads["refused"] += 1
        self._proxy.counters[CONFIG_ACCEPTED].value = 0.0
        return failed

    def _refuse(self, error: ConfigError) -> None:
        for problem in error.problems:
            self._log.error(
                "configuration fault",
                file=problem.file,
                line=problem.line,
                key=problem.key,
                got=problem.got,
                expected=problem.expected,
            )
        self._log.error(REFUSED, detail=f"faults: {len(error.problems)}")

    def _stopping(self) -> bool:
        if self._proxy.phase is Phase.SERVING:
            return False
        self._proxy.counters[CONFIG_RELOADS]["ignored"] += 1
        self._log.warning("reload ignored: the proxy is stopping")
        return True

    async def _read(self) -> Config:
        """Read the sources in a thread with a timeout, as a file may be on a disk that hangs."""
        try:
            return await in_thread(self._load, "reload", READ_SECONDS)
        except TimeoutError:
            raise ConfigUnreadable(f"not read within {READ_SECONDS:g} s") from None
        except NoThread as error:
            raise ConfigUnreadable(error.strerror) from None
