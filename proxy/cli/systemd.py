"""What the proxy tells systemd: ready, reloading, stopping, one line of status, and that its event loop still turns.

Rule: sd_notify(3) over `NOTIFY_SOCKET`, one datagram a message, never blocking and never an error of the proxy's: a
service manager that does not listen must not matter. The watchdog is fed by a timer of the event loop alone, so that a
loop which is stuck for longer than `WATCHDOG_USEC` is killed and started anew.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

_MICROSECONDS: Final = 1_000_000
_LONGEST_STATUS: Final = 200


class Timer(Protocol):
    """A callback to come."""

    def cancel(self) -> None:
        """Have it not come."""


class Timers(Protocol):
    """The part of an event loop that the watchdog uses."""

    def call_later(self, delay: float, callback: "Feed", /) -> Timer:
        """Call back after `delay` seconds."""


class Feed(Protocol):
    """Something that takes no argument."""

    def __call__(self) -> None:
        """Do it."""


class ServiceManager:
    """Tell the service manager how the proxy is; does nothing where there is none.

    `environ` is the process's; `pid` is checked against `WATCHDOG_PID`, because the variables reach children too.
    """

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._socket: socket.socket | None = None
        self._timer: Timer | None = None
        self.watchdog_seconds = _watchdog_seconds(environ, pid) if self._address else 0.0
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        """Say that clients are served; also at the end of a reload."""
        self._tell("READY=1", _status(status))

    def reloading(self, monotonic_seconds: float) -> None:
        """Say that the configuration is being read again since `monotonic_seconds` (CLOCK_MONOTONIC)."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_seconds * _MICROSECONDS)}")

    def stopping(self, status: str, longest_seconds: float) -> None:
        """Say that the proxy leaves, and how long it may take: the unit's own limit need not be known here."""
        extend = f"EXTEND_TIMEOUT_USEC={int(longest_seconds * _MICROSECONDS)}"
        self._tell("STOPPING=1", extend, _status(status))

    def status(self, text: str) -> None:
        """Give the line that `systemctl status` shows."""
        self._tell(_status(text))

    def watch(self, timers: Timers) -> None:
        """Feed the watchdog from now on, twice in its time."""
        if self.watchdog_seconds:
            self._feed(timers)

    def close(self) -> None:
        """Feed it no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _feed(self, timers: Timers) -> None:
        self._tell("WATCHDOG=1")
        self._timer = timers.call_later(self.watchdog_seconds / 2, lambda: self._feed(timers))

    def _tell(self, *assignments: str) -> None:
        if self._socket is not None:
            # Nobody listens, or its queue is full: there is nobody to tell that either.
            with suppress(OSError):
                self._socket.sendto("\n".join(assignments).encode(), self._address)


def manager_of_this_process() -> ServiceManager:
    """Give the manager that started this process, if one did."""
    return ServiceManager(os.environ, os.getpid())


def _address(setting: str) -> str:
    # "@name" is a socket in the abstract namespace; anything else but a path is of a family that Python lacks.
    if setting.startswith("@"):
        return "\0" + setting[1:]
    return setting if setting.startswith("/") else ""


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float:
    microseconds = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", str(pid))
    if not (microseconds.isascii() and microseconds.isdigit()) or meant != str(pid):
        return 0.0
    return int(microseconds) / _MICROSECONDS


def _status(text: str) -> str:
    # A line break would begin an assignment of its own.
    return "STATUS=" + " ".join(text.split())[:_LONGEST_STATUS]
