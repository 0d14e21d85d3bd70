"""The parts of a proxy that the admin API shows and changes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from limiter.semaphore import AsyncSemaphore
from proxy.clients.sessions import Sessions
from proxy.core.counters import Counters
from proxy.core.log import Logger
from proxy.net.listen.listening import ListeningSockets
from proxy.requests.topic_lists.groups import ListGroups
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.web.admin.reload_report import ReloadReport
from proxy.web.runtime_settings import RuntimeSettings


class NotUndone(Exception):
    """A drain cannot be called off; the text says why."""


@dataclass(frozen=True, slots=True)
class ProcessControl:
    """What the process around a proxy, which takes signals, does for the admin API (`proxy.cli.serve` says how).

    `set` changes a dynamic key for some seconds, or until the next reload; it raises ConfigError. `drain` begins to
    stop, maybe at once, and returns how long that may take; None if the proxy is stopping already. `undo_drain` calls
    off a drain that the admin API began; it raises NotUndone. `hand_over` leaves the listening sockets to the process
    that has got them, stops, and returns how long that may take. `fail` stops in order, with an exit code that says
    that the proxy has failed.
    """

    reload: Callable[[], Awaitable[ReloadReport]]
    set: Callable[[str, str, float | None], Mapping[str, object]]
    drain: Callable[[bool], Mapping[str, object] | None]
    undo_drain: Callable[[], None]
    hand_over: Callable[[], Mapping[str, object]]
    fail: Callable[[], None]


@dataclass(frozen=True, slots=True)
class AdminSources:
    """References to the parts of one proxy; `names` shows principals as the log does.

    `process` returns None if the proxy is embedded in another program instead of run by `serve`.
    """

    loop: asyncio.AbstractEventLoop
    log: Logger
    counters: Counters
    sessions: Sessions
    names: Callable[[object], str]
    # Each semaphore at which somebody may wait, with the unit of its permits.
    semaphores: Callable[[], Iterable[tuple[str, AsyncSemaphore]]]
    groups: ListGroups
    heap_waits: LimiterMetrics
    direct_waits: LimiterMetrics
    settings: RuntimeSettings
    top: Callable[[], Mapping[str, object]]
    phase: Callable[[], str]
    process: Callable[[], ProcessControl | None]
    listening: ListeningSockets
    budget_bytes: Callable[[], int]
