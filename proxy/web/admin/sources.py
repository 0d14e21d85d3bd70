"""The parts of a proxy that the admin API shows and changes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

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


class ProcessControl(Protocol):
    """The process around a proxy, which takes signals (`proxy.cli.serve`)."""

    async def reload(self) -> ReloadReport:
        """Read the configuration again, and return the result."""

    def set(self, name: str, text: str, seconds: float | None) -> Mapping[str, object]:
        """Change a dynamic key for `seconds`, or until the next reload; raise ConfigError."""

    def drain(self, *, at_once: bool) -> Mapping[str, object] | None:
        """Begin to stop, and return how long that may take; None if the proxy is stopping already."""

    def undo_drain(self) -> None:
        """Call off a drain that the admin API began; raise NotUndone."""

    def hand_over(self) -> Mapping[str, object]:
        """Leave the listening sockets to the process that has got them, and stop; return how long that may take."""

    def fail(self) -> None:
        """Stop in order, with an exit code that says that the proxy has failed."""


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
