"""Build overload control while a throttle is enabled, and end it when none is.

Rule: nothing of `proxy.overload` but its counters and bounds is imported before a throttle is enabled. Messages are
counted for clients that join while a throttle is enabled; those that joined before are never slowed.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.brokers.side import BrokerSide
from proxy.clients.sessions import Sessions
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.process_memory import SYSTEM_PATHS
from proxy.core.tasks import TaskScope
from proxy.overload.counters import OverloadCounters
from proxy.relay.engines import RelayEngines
from proxy.requests.topic_lists.memory import ListMemory
from proxy.telemetry.events.recorder import Recorder

if TYPE_CHECKING:
    from proxy.overload.broker_questions import BrokerQuestions
    from proxy.overload.control import OverloadControl
    from proxy.overload.relay_weights import RelayWeights
    from proxy.overload.report import Record
    from proxy.overload.samples import OwnerBytes
    from proxy.overload.settings import OverloadSettings
    from proxy.overload.signal_watch import SignalWatch

NAME: Final = "overload"


class OverloadSwitch:
    """Overload control as long as a throttle is enabled; `control` is None otherwise."""

    def __init__(
        self,
        core: Core,
        sessions: Sessions,
        memory: ListMemory,
        engines: RelayEngines,
        side: BrokerSide,
        recorder: Recorder | None,
    ) -> None:
        self._core = core
        self._sessions = sessions
        self._memory = memory
        self._engines = engines
        self._side = side
        self._recorder = recorder
        self.counters = OverloadCounters(core.counters)
        self._scope = TaskScope(lambda error: core.counters.internal_error(error, NAME))
        self._weights: RelayWeights | None = None
        self._is_closed = False
        self.control: OverloadControl | None = None
        # The last one that ended, which may still be releasing connections and topics.
        self._ended: OverloadControl | None = None
        # The files that say how much memory is in use, read when a throttle is enabled.
        self.memory_paths = SYSTEM_PATHS

    def apply(self, config: Config) -> None:
        """Start, change or end overload control, as a configuration wants it; nothing once it is closed."""
        if self._is_closed:
            # Keys may change during a drain, in which producers have to come to their end.
            return
        settings = overload_settings(config)
        if (slots := self._engines.slots) is not None:
            slots.enabled = settings is not None
        if settings is None:
            self._end()
            return
        if self.control is not None:
            if self._weights is not None:
                self._weights.most_seconds = settings.threshold.max_pause_seconds
            self.control.apply(settings)
            return
        from proxy.app.metrics.overload_rows import show_overload
        from proxy.overload.control import OverloadControl
        from proxy.overload.relay_weights import RelayWeights

        show_overload(self._core.counters, self.counters)
        longest = settings.threshold.max_pause_seconds
        self._weights = RelayWeights(self._sessions.all_relays, self.counters, longest, self._engines.received_memory)
        # Without the extension no throttle can be enabled.
        assert slots is not None
        watch = self._watch(config, settings)
        self.control = OverloadControl(self._core.loop, settings, watch, self._sessions.all_relays, slots)
        self.control.start(after=self._ended)

    async def tick(self, now: float) -> None:
        """Free the slots of topics that nobody sends to, and weigh all relays while a throttle is enabled."""
        if (slots := self._engines.slots) is not None:
            slots.close_unused(now)
        if self._weights is not None:
            await self._weights.sweep(partial(asyncio.sleep, 0))

    def reopen(self, config: Config) -> None:
        """Undo a close: the drain was called off."""
        self._is_closed = False
        self.apply(config)

    async def close(self) -> None:
        """End overload control, so that everybody is read again; it stays ended."""
        self._is_closed = True
        self._end()
        await self._scope.emptied()

    def _end(self) -> None:
        control, self.control = self.control, None
        weights, self._weights = self._weights, None
        if weights is not None:
            weights.forget()
        if control is not None:
            self.counters.view = None
            self._ended = control
            self._scope.start(self._closed(control))

    async def _closed(self, control: "OverloadControl") -> None:
        try:
            await control.close()
        finally:
            if self._ended is control:
                self._ended = None

    def _watch(self, config: Config, settings: "OverloadSettings") -> "SignalWatch":
        from proxy.overload.machine_memory import MachineMemory
        from proxy.overload.report import ThrottleReport
        from proxy.overload.signal_watch import SignalWatch

        machine = MachineMemory(
            is_sidecar=config.proxy_role == "sidecar",
            socket_bytes=lambda: sum(self._engines.weighed),
            paths=self.memory_paths,
        )
        report = ThrottleReport(self._core.log.of("overload"), _record(self._recorder))
        return SignalWatch(settings, machine, self.owners, _questions(config, self._side), self.counters, report)

    def owners(self) -> "OwnerBytes":
        """Return whose bytes the memory of relays and lists holds."""
        from proxy.overload.samples import OwnerBytes

        limiter, sockets = self._memory.limiter, self._engines.weighed
        held = (0, 0) if self._weights is None else self._weights.held
        received = (0, 0) if self._weights is None else self._weights.received
        # A socket has bytes of both directions: a broker's receive queue is on its way to clients. The sums are of
        # different looks, so that a difference may be below zero.
        return OwnerBytes(
            towards_brokers=max(0, sockets.towards_brokers - received[0]) + held[0],
            towards_clients=max(0, sockets.towards_clients - received[1]) + received[0] + held[1],
            lists=limiter.heap.held + limiter.direct.held,
            unread=received[1],
        )


def overload_settings(config: Config) -> "OverloadSettings | None":
    """Return what overload control reads of a configuration; None while no throttle is enabled."""
    if not config.throttle_enabled:
        return None
    from proxy.overload.settings import OverloadSettings

    return OverloadSettings.of(config)


def _questions(config: Config, side: BrokerSide) -> "BrokerQuestions | None":
    from proxy.web.forward.settings import WebTargets

    urls = WebTargets.of(config).brokers
    if not urls:
        return None
    from proxy.overload.broker_questions import BrokerQuestions

    return BrokerQuestions(urls, side.admin_port)


def _record(recorder: Recorder | None) -> "Record | None":
    if recorder is None:
        return None
    from proxy.telemetry.events.throttle_records import ThrottleEvents

    return ThrottleEvents(recorder).record
