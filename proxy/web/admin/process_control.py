"""What the process around a proxy does for the admin API."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from proxy.web.admin.reload_report import ReloadReport


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
