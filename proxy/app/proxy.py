"""The proxy: build its parts, start them, run its clock, close the parts in order.

Rule: a part that is not configured is not imported, and a part that clients do not need to connect is imported when the
ports for clients are open: half of the time that the start takes goes into imports.
"""

import asyncio
import importlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.sink import EventSink
from limiter.semaphore import AsyncSemaphore
from protocol.host_port import host_port
from proxy.app.broker_side import make_broker_side
from proxy.app.client_services import make_recorder, request_services
from proxy.app.cycles import CycleCollection
from proxy.app.identities import make_identities
from proxy.app.lifecycle import Phase
from proxy.app.metrics.counters import CONFIG_ACCEPTED, CONTROLLER_AGES, MemoryBudget
from proxy.app.metrics.otel_settings import export_wanted
from proxy.app.metrics.process import LoopLag
from proxy.app.overload import NAME, OverloadSwitch, overload_settings
from proxy.app.ports import ClientPorts
from proxy.app.relay_engines import make_engines
from proxy.app.reload import LivePart
from proxy.app.secret_modes import warn_of_open_secrets
from proxy.brokers.pool import PoolLimits
from proxy.brokers.side import DialSettings, TargetLists
from proxy.brokers.sockets import Sockets
from proxy.clients.connection import ClientConnection
from proxy.clients.connection_log import ConnectionLog
from proxy.clients.services import ClientLimits, ClientServices
from proxy.clients.sessions import SessionLimits, Sessions
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.config.keys.log_components import COMPONENTS
from proxy.core.counters import Counters
from proxy.core.log import Logger
from proxy.core.log_level import LogLevels
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread
from proxy.net.send_buffers import SendSettings
from proxy.net.write_watch import WriteLimits
from proxy.overload.bounds import RECEIVED_BYTES
from proxy.relay.direct_mode import DirectMode
from proxy.relay.relay_log import RelayLog
from proxy.relay.watch_limits import WatchLimits, WatchSettings
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.requests.topic_lists.memory import ListMemory, MemorySettings
from proxy.requests.topic_lists.service import ANSWERS
from proxy.telemetry.events.recorder import RecorderSettings
from proxy.telemetry.events.reports import Reports
from proxy.web.admin.access import AdminAccess
from proxy.web.admin.control_socket import open_control
from proxy.web.admin.listener import AdminListener
from proxy.web.admin.process_control import ProcessControl
from proxy.web.admin.rates import Rates
from proxy.web.readiness import Readiness
from proxy.web.runtime_settings import RuntimeSettings

if TYPE_CHECKING:
    from proxy.app.memory.nodes import Node
    from proxy.app.metrics.export import OtlpExport
    from proxy.auth.authenticator import Authenticator
    from proxy.telemetry.events.log import EventLog
    from proxy.web.admin.server import AdminServer
    from proxy.web.port import WebPort
    from proxy.web.ui.minutes import Minutes

TICK_SECONDS: Final = 1.0
_WEB_MODULES: Final = ("prometheus_client", "proxy.app.web_side", "proxy.web.server", "proxy.web.accept")
_BUDGET_MODULES: Final = ("proxy.app.memory.budget_report", "proxy.app.metrics.process_rows")


class Proxy:
    """A proxy on the running loop: call `start`, then `stop`."""

    def __init__(
        self,
        config: Config,
        log: Logger,
        role_finder: "Authenticator | None" = None,
        event_sink: EventSink | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        counters = self.counters = Counters(self._report)
        core = self.core = Core(loop, config, counters, log, LoopBudget(loop, time.perf_counter))
        self.log, self.loop = log, loop
        # What is shared by all connections, and who they belong to.
        self.sockets = Sockets(core)
        self.identities = make_identities(core, role_finder)
        names = self.identities.names
        self.memory = ListMemory(core)
        # What operators see of clients.
        self.log_levels = LogLevels(log, loop, COMPONENTS, config.log_level, config.component_levels)
        self.relay_log = RelayLog(log.of("relay"), core.clock, int(config.proxy_log_level))
        self.connection_log = ConnectionLog(log.of("connections"), names, config.connection_log_percent)
        self.event_log = self._event_log()
        sink = self.event_log.sink if event_sink is None and self.event_log is not None else event_sink
        self.reports = Reports(core, names, make_recorder(core, self.memory, sink))
        # The clients, and the brokers.
        self.sessions = Sessions(core, SessionLimits.of(config), self.connection_log)
        self.broker_side = make_broker_side(core, self.sockets, self.identities)
        # Relays.
        self.watch_limits = WatchLimits.of(core, self.memory.limiter.direct, self.reports.recorder)
        self.relay_engines = make_engines(
            core, self.sockets, self.watch_limits, self.relay_log, self.sessions.relay_origins
        )
        # What serves clients, and where they come in.
        self.services = ClientServices(
            core,
            self.sockets,
            self.memory,
            self.sessions,
            request_services(core, self.memory, self.sockets.pump, self.broker_side, self.reports),
            DirectMode(core, self.sockets, self.broker_side, self.relay_engines),
            self.identities.clients,
        )
        self.client_ports = ClientPorts(
            core, self.sockets, self.sessions, self.relay_engines.threads, partial(ClientConnection, self.services)
        )
        self.overload = OverloadSwitch(
            core, self.sessions, self.memory, self.relay_engines, self.broker_side, self.reports.recorder
        )
        # What operators ask: the web ports and exports are made at the start.
        self.phase = Phase.SERVING
        self.readiness = Readiness(core.clock, self.sessions.accepting, self.relay_engines)
        self.budget = MemoryBudget()
        self.live = RuntimeSettings(
            core, self.log_levels, self.relay_log, self.sessions.all_relays, self._compute_budget
        )
        self._rates = Rates()
        self.admin = AdminListener(core, self.sockets.listening, self._admin_server)
        self.admin_port = 0
        self.web: WebPort | None = None
        self.minutes: Minutes | None = None
        self.export: OtlpExport | None = None
        # The process that handles signals for this proxy; None if the proxy is embedded in another program.
        self.process: ProcessControl | None = None
        # Clocks.
        self._scope = TaskScope(lambda error: counters.internal_error(error, "clock"))
        self._lag = LoopLag(loop, counters)
        self._exporting = export_wanted(os.environ, log)
        counters[CONFIG_ACCEPTED].value = 1.0
        self._started_at = self._ticked_at = loop.time()
        self._cycles = CycleCollection(self.sockets, self.sessions, counters, self.services.requests, self._started_at)
        counters.show(CONTROLLER_AGES, self._controller_ages)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.core.config

    @property
    def port(self) -> int:
        """The port for clients; 0 until it is open, or if it is not configured."""
        return self.client_ports.port

    @property
    def tls_port(self) -> int:
        """The port for clients with TLS; 0 until it is open, or if it is not configured."""
        return self.client_ports.tls_port

    @property
    def client_port(self) -> int:
        """The port that names this proxy: the plain port, or else the port with TLS."""
        return self.port or self.tls_port

    @property
    def web_port(self) -> int:
        """The plain web port; 0 until it is open, or if it is not configured."""
        return 0 if self.web is None else self.web.port or 0

    async def start(self, process: ProcessControl | None = None, *, control: bool = True) -> None:
        """Listen on all ports and start all background tasks; raises OSError if a port cannot be bound.

        `process` handles signals for this proxy; None if the proxy is embedded in another program.
        `control`: listen for control, too, where another process may have to leave first.
        """
        config, self.process = self.config, process
        if self.relay_engines.native is not None:
            self.relay_engines.native.start(self._thread_died)
        self.client_ports.open()
        self.sockets.tls_files.start()
        self._scope.start(self._tick())
        self._scope.start(self.services.uploads.run(self.loop.time))
        self._lag.start()
        self.identities.start()
        if self.event_log is not None:
            self.event_log.start()
        self.broker_side.start()
        self.readiness.opened(self.broker_side.brokers, config.seconds(Config.readiness_broker_wait_millis))
        self.client_ports.log_ports()
        warn_of_open_secrets(config, self.log)
        await in_thread(lambda: list(map(importlib.import_module, _BUDGET_MODULES)), "budget", None)
        self._show_budget()  # before anybody can ask for it
        self.admin_port = self.admin.open(config, self.log)
        if control:
            self.open_control()
        if config.has_web_port:
            await self._start_web()
        for place in self.sockets.listening.close_unused():
            self.log.warning("a listening socket that was handed over is not used", address=place)
        self._log_budget()
        # Not what was in force when the start began: a reload may have changed it since.
        self.client_ports.bound_received(_received_bytes(self.config))
        self.overload.apply(self.config)
        if self._exporting is not None:
            from proxy.app.metrics.export import make_export

            self.export = make_export(self._exporting, config.cluster_name, self.counters, self.log)
            self.export.start()

    def open_control(self) -> None:
        """Listen for control; raises OSError if another process does."""
        control = open_control(self.config.control_socket_path, self.client_port, self.log)
        if control is not None:
            self.admin.accept_at(control)

    def _show_budget(self) -> None:
        from proxy.app.metrics.process_rows import USED_BYTES, show_process

        self._compute_budget()
        show_process(self.counters, self.budget)
        self.counters.show(USED_BYTES, self._used)

    def _compute_budget(self) -> bool:
        """Compute the worst case of all memory; return whether it is another than before."""
        from proxy.app.memory.budget_report import count_budget

        return count_budget(self.budget, self.config, exports=self._exporting is not None)

    def _log_budget(self) -> None:
        """Log the worst case of all memory with its largest parts, and the memory of container and machine."""
        from proxy.app.memory.budget_report import log_budget

        log_budget(self.budget, self.log)

    def renew_budget(self) -> None:
        """Compute the worst case of all memory, of which any key may be a part, and log it if it is another."""
        if self._compute_budget():
            self._log_budget()

    async def _start_web(self) -> None:
        # Half of the start: clients are served meanwhile.
        await in_thread(lambda: list(map(importlib.import_module, _WEB_MODULES)), "web", None)
        from proxy.app import web_side
        from proxy.web.port import WebPort

        core, sockets, side = self.core, self.sockets, self.broker_side
        minutes = self.minutes = web_side.minutes_of(core, self.memory, self._lines)
        pages = web_side.pages_of(core, self.identities, self.readiness, self.live, partial(self._seen, minutes))
        lookups = web_side.lookup_ports(core, sockets, side, self.client_ports)
        passes_on = web_side.reverse_proxy(core, self.memory, side, self.reports, lookups)
        web = WebPort(core, sockets, self.memory, self.reports, pages, passes_on)
        await web.start()
        self.web = web

    def _lines(self) -> list[AsyncSemaphore]:
        """Return each line in which lists wait for memory: those that the statistics of both limiters add up."""
        return [semaphore for node, semaphore in self.nodes() if node.lists]

    def _seen(self, minutes: "Minutes") -> Mapping[str, object]:
        """Return what the page for people shows."""
        from proxy.app.memory.budget import summands
        from proxy.web.ui.document import ui_document

        parts = summands({line.owner: line.limit_bytes for line in self.budget.lines})
        return ui_document(self.shown(), parts, self.memory.limiter, self._lines(), self.identities.names, minutes)

    def hand_over(self) -> Path | None:
        """Leave all listening sockets to the process that has them, too; return the new path of the control socket."""
        self.sessions.hand_over()
        self.client_ports.stop_accepting()
        if self.web is not None:
            self.web.stop_accepting()
        self.sockets.listening.hand_over()
        return self.admin.step_aside()

    def enter(self, phase: Phase, *, ready: bool) -> None:
        """Called when the shutdown enters a phase; `ready`: readiness probes still succeed."""
        self.phase = phase
        self.readiness.drains(not ready)

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Drain, and close everything; without `drain_seconds` the limit of the drain is `shutdownDrainMillis`."""
        seconds = self.config.seconds(Config.shutdown_drain_millis) if drain_seconds is None else drain_seconds
        ends = self.loop.time() + seconds
        await self.drain(seconds)
        await self.close(ends - self.loop.time())

    async def drain(self, seconds: float) -> None:
        """Stop accepting, and wait for open requests for at most `seconds`; meanwhile `serve_again` undoes that."""
        if self.phase is not Phase.CLOSING:
            # After a hand-over another process serves at this address.
            self.enter(Phase.DRAINING, ready=self.sessions.handed_over)
        await self.client_ports.close()
        # Paused producers go on, so that they can end.
        await self.overload.close()
        await self.sessions.drain(seconds)

    def serve_again(self) -> None:
        """Undo a drain, whose task the caller cancels; raises OSError if a port cannot be opened again."""
        self.client_ports.reopen()
        self.overload.reopen(self.config)
        self.enter(Phase.SERVING, ready=True)

    async def close(self, seconds: float) -> None:
        """Close everything after the drain; the last events have `seconds` to be written."""
        ends = self.loop.time() + seconds
        requests = self.services.requests
        requests.leaving.finish()
        if self.relay_engines.native is not None:
            await self.relay_engines.native.stop()
        await requests.lookups.close()
        await requests.topic_lists.close()
        if self.web is not None:
            # Topic lists over HTTP produce events, so the web port closes before the event log.
            await self.web.close()
        if self.reports.recorder is not None:
            await self.reports.recorder.flush()
        if self.memory.spill is not None:
            await self.memory.spill.close()
        if self.event_log is not None:
            await self.event_log.close(ends - self.loop.time())
        await self.broker_side.close()
        await self.identities.close()
        if self.export is not None:
            # Export last, so that the final export contains everything counted above.
            await self.export.close()
        self.close_control()
        await self.admin.closed()
        await self.sockets.tls_files.close()
        await self.client_ports.end()
        self._lag.stop()
        self._scope.cancel()
        await self._scope.emptied()
        self.sessions.accepting.resume()
        self.log_levels.end()
        self.memory.limiter.close()
        self.sockets.close()

    def close_control(self) -> None:
        """Close the admin API and remove the Unix sockets; also works after a failed start or a cut drain."""
        self.admin.close()
        self.sockets.listening.remove_files()

    def abandon(self) -> None:
        """Leave everything as it is, and wait for nothing: the process is about to end."""
        self.close_control()
        if self.relay_engines.native is not None:
            self.relay_engines.native.abandon()

    def live_parts(self) -> Iterator[LivePart[Any]]:
        """Yield the parts that a change of live keys reaches, in the order in which they change."""
        side = self.broker_side
        yield LivePart(lambda config: (config.log_level, config.component_levels), self._apply_levels)
        yield LivePart(lambda config: config.connection_log_percent, self.connection_log.apply)
        yield LivePart(lambda config: int(config.proxy_log_level), self.relay_log.set_level)
        yield LivePart(lambda config: (MemorySettings.of(config), TopicListLimits.of(config)), self._apply_lists)
        if self.reports.recorder is not None:
            yield LivePart(RecorderSettings.of, self.reports.recorder.apply)
        yield LivePart(WriteLimits.of, self.memory.writes.apply)
        if self.memory.spill is not None:
            from proxy.net.spill.spill import SpillSettings

            yield LivePart(SpillSettings.of, self.memory.spill.apply)
        yield LivePart(WatchSettings.of, self.watch_limits.apply)
        yield LivePart(_places_and_seconds, self._apply_requests)
        yield LivePart(lambda config: (ClientLimits.of(config), SessionLimits.of(config)), self._apply_clients)
        yield LivePart(lambda config: config.handshake_bytes, self.services.limit_handshakes)
        yield LivePart(SendSettings.of, self.services.send_buffers.apply)
        yield LivePart(PoolLimits.of, side.pool.apply)
        yield LivePart(DialSettings.of, side.apply_dials)
        yield LivePart(TargetLists.of, side.apply_targets)
        if self.web is not None:
            from proxy.web.forward.settings import WebLimits

            yield LivePart(WebLimits.of, self.web.apply)
        # Overload control that begins reads keys which need a restart, too.
        yield LivePart(overload_settings, lambda _: self.overload.apply(self.config))
        yield LivePart(_received_bytes, self.client_ports.bound_received)

    def _apply_levels(self, settings: tuple[str, Mapping[str, str]]) -> None:
        self.log_levels.configure(*settings)

    def _apply_lists(self, settings: tuple[MemorySettings, TopicListLimits]) -> None:
        # The limiter before the lists, which read its limits: a single broker may use a part of the heap limit.
        memory, lists = settings
        self.memory.apply(memory)
        self.services.frames.follow()
        self.services.requests.topic_lists.apply(lists)

    def _apply_requests(self, settings: tuple[int, float]) -> None:
        most, seconds = settings
        self.services.requests.lookups.apply(most, seconds)
        self.services.requests.schemas.apply(seconds)

    def _apply_clients(self, settings: tuple[ClientLimits, SessionLimits]) -> None:
        clients, sessions = settings
        self.services.apply(clients, sessions.handshake_seconds)
        self.services.direct_mode.apply(sessions.read_timeout_seconds)
        self.sessions.apply(sessions)
        self.sockets.hangup.ended.limit(sessions.total)

    def files_may_have_changed(self) -> None:
        """Check the files of certificates soon."""
        self.sockets.tls_files.look()

    # --- clocks -------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.loop.time()
            for step in self._steps_of_a_second():
                try:
                    waited_for = step(now)
                    if waited_for is not None:
                        await waited_for
                except Exception as error:
                    # A part that fails must not stop the clocks of all others.
                    self.counters.internal_error(error, "clock")
            self._ticked_at = now

    def _steps_of_a_second(self) -> Iterator[Callable[[float], Awaitable[None] | None]]:
        requests, writes = self.services.requests, self.memory.writes
        yield self.sessions.tick
        yield self.relay_engines.tick
        yield self.broker_side.pool.tick
        yield lambda now: self.memory.slabs.trim()
        yield self._cycles.tick
        yield writes.sweep
        yield self.sockets.hangup.ended.sweep
        yield lambda now: requests.topic_lists.arriving.sweep(now, writes.limits.min_bytes_per_second)
        yield lambda now: requests.schemas.arriving.sweep(now, writes.limits.min_bytes_per_second)
        yield lambda now: self.reports.refusals.flush()
        yield self.live.tell
        yield self.relay_log.tick
        yield self._weigh_sockets
        yield self.overload.tick
        yield lambda now: self._rates.tick(now, self.counters[ANSWERS])
        yield self.reports.tenants.turn
        if self.minutes is not None:
            yield self.minutes.tick

    def _controller_ages(self) -> Mapping[str, float]:
        ages, control = {"clock": self.loop.time() - self._ticked_at}, self.overload.control
        return ages if control is None else {**ages, NAME: control.age_seconds()}

    async def _weigh_sockets(self, now: float) -> None:
        await self.relay_engines.weigh(self.sessions.all_relays(), partial(asyncio.sleep, 0))

    # --- shown ------------------------------------------------------------------------------

    def nodes(self) -> "Iterator[tuple[Node, AsyncSemaphore]]":
        """Yield each semaphore at which clients' requests may wait, with its declaration."""
        from proxy.app.memory import nodes

        memory, services = self.memory, self.services
        yield nodes.HEAP, memory.limiter.heap
        yield nodes.DIRECT, memory.limiter.direct
        yield nodes.SILENT, memory.unproven.share
        yield nodes.AWAKE, memory.unproven.shares.awake
        yield nodes.FRAMES, services.frames
        yield nodes.HANDSHAKES, services.handshakes
        yield nodes.LOOKUPS, services.requests.lookups.concurrency
        for queue in self.memory.queues.all().values():
            yield nodes.ESTIMATES, queue.reservations
            yield nodes.ANSWERS, queue.answers
            yield nodes.UNPROVEN, queue.unproven
            yield nodes.QUESTIONS, queue.in_flight

    def _used(self) -> Mapping[str, float]:
        """Return the bytes in use of each line of the budget."""
        from proxy.app.memory.in_use import used_bytes

        held = {node.label: semaphore.held for node, semaphore in self.nodes() if node.label}
        sends = self.services.send_buffers.memory
        return used_bytes(self.counters, held, sends, self.relay_engines, self.event_log)

    def shown(self) -> Mapping[str, object]:
        """Return the document that `pulsar-proxy top` shows."""
        from proxy.app import top_document as top

        counters, address = self.counters, host_port(self.config.bind_address[0], self.client_port)
        up = self.loop.time() - self._started_at
        return {
            "proxy": top.proxy(self.core, self.relay_engines.threads, self.sessions, address, self.phase, up),
            "memory": top.memory(self.budget),
            "limiters": top.limiters(self.memory.statistics()),
            "clients": top.clients(counters, self.sessions, self.client_ports.older_clients),
            "brokers": list(self.broker_side.brokers.shown()[: top.TOP_BROKERS]),
            **top.counted(counters, self._rates),
            "relays": top.relays(self.relay_engines),
            "overload": top.overload(self.overload.counters),
            "watches": top.watches(counters),
            **top.reported(self.reports),
            **top.configured(self.core),
        }

    def _thread_died(self, index: int) -> None:
        self.log.error("a relay thread has died: the proxy ends, because it cannot relay reliably", thread=index)
        if self.process is not None:
            self.process.fail()

    def _report(self, error: BaseException, where: str) -> None:
        # Not the repr: that of a UnicodeDecodeError has all the bytes, which may be a password.
        self.log.error("unexpected error", where=where, detail=f"{type(error).__name__}: {error}", exc_info=error)

    # --- parts --------------------------------------------------------------------------------------

    def _event_log(self) -> "EventLog | None":
        config = self.config
        if not config.event_log_directory and not config.event_log_topic:
            return None
        from proxy.telemetry.events.log import EventLog

        own, broker_tls = self.identities.own, self.sockets.tls_files.broker_client
        return EventLog(self.core, own, broker_tls)

    def _admin_server(self, access: AdminAccess) -> "AdminServer":
        from proxy.web.admin.actions import ClientActions, ProcessActions, ToolActions
        from proxy.web.admin.paging import AdminDocument
        from proxy.web.admin.server import AdminServer
        from proxy.web.admin.views import ClientViews, ListViews, index, settings_views, stacks

        core, sessions, names = self.core, self.sessions, self.identities.names
        groups = self.services.requests.topic_lists.groups
        views = {
            "index": index,
            "top": lambda _: AdminDocument(self.shown()),
            "stacks": stacks,
            **settings_views(self.live),
            **ClientViews(core, sessions, names).by_route(),
            **ListViews(core, self.memory, groups, self._semaphores, names).by_route(),
        }
        process = ProcessActions(
            core, lambda: self.process, lambda: self.phase, sessions, self.sockets.listening,
            lambda: self.budget.total_bytes,
        )  # fmt: skip
        actions = {
            **ClientActions(core, sessions, names).by_route(),
            **ToolActions(core.log, self.live).by_route(),
            **process.by_route(),
        }
        return AdminServer(self.counters, access, views, actions)

    def _semaphores(self) -> "Iterator[tuple[str, AsyncSemaphore]]":
        return ((node.unit, semaphore) for node, semaphore in self.nodes())


def _places_and_seconds(config: Config) -> tuple[int, float]:
    """Return how many lookup-mode requests there may be, and the time limit of each."""
    return config.max_concurrent_lookup_requests, config.seconds(Config.topic_list_request_timeout_millis)


def _received_bytes(config: Config) -> int:
    """Return the bound of the kernel's receive buffer of clients; 0: the kernel's choice."""
    return RECEIVED_BYTES if config.throttle_acts else 0
