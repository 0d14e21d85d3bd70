"""Notify systemd: ready, reloading, stopping, a line of status, and the watchdog.

Rule: sd_notify(3) over `NOTIFY_SOCKET`, a datagram for each message. Sending never blocks and never raises: a service
manager that does not listen must not disturb the proxy. Only a timer of the event loop feeds the watchdog, so that
systemd restarts a proxy whose loop is stuck for longer than `WATCHDOG_USEC`.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from proxy.core.log_level import Timer, Timers

_MICROSECONDS: Final = 1_000_000
_LONGEST_STATUS: Final = 200


class ServiceManager:
    """Notifies the service manager; does nothing if there is none.

    `environ` is the environment of the process. `pid` is compared with `WATCHDOG_PID`, because child processes inherit
    the variables.
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
        """Report that clients are served, after the start and after a reload."""
        self._notify("READY=1", _status(status))

    def reloading(self, monotonic_seconds: float) -> None:
        """Report a reload that began at `monotonic_seconds` (CLOCK_MONOTONIC)."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_seconds * _MICROSECONDS)}")

    def stopping(self, status: str, longest_seconds: float) -> None:
        """Report that the proxy stops within `longest_seconds`, which extends the time limit of the unit."""
        extend = f"EXTEND_TIMEOUT_USEC={int(longest_seconds * _MICROSECONDS)}"
        self._notify("STOPPING=1", extend, _status(status))

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._notify(_status(text))

    def watch(self, timers: Timers) -> None:
        """Feed the watchdog from now on, twice in each of its intervals."""
        if self.watchdog_seconds:
            self._feed(timers)

    def close(self) -> None:
        """Stop feeding the watchdog, and close the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _feed(self, timers: Timers) -> None:
        self._notify("WATCHDOG=1")
        self._timer = timers.call_later(self.watchdog_seconds / 2, lambda: self._feed(timers))

    def _notify(self, *assignments: str) -> None:
        if self._socket is not None:
            # Nobody listens, or the manager's queue is full: there is nobody to report the error to.
            with suppress(OSError):
                self._socket.sendto("\n".join(assignments).encode(), self._address)


def manager_of_this_process() -> ServiceManager:
    """Return the notifier of the manager that started this process, if any did."""
    return ServiceManager(os.environ, os.getpid())


def _address(setting: str) -> str:
    # "@name" is a socket in the abstract namespace. Other values than a path name a family that Python lacks (vsock).
    if setting.startswith("@"):
        return "\0" + setting[1:]
    return setting if setting.startswith("/") else ""


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float:
    microseconds = environ.get("WATCHDOG_USEC", "")
    watched_pid = environ.get("WATCHDOG_PID", str(pid))
    if not (microseconds.isascii() and microseconds.isdigit()) or watched_pid != str(pid):
        return 0.0
    return int(microseconds) / _MICROSECONDS


def _status(text: str) -> str:
    # A line break would begin another assignment.
    return "STATUS=" + " ".join(text.split())[:_LONGEST_STATUS]
