"""Notifications for systemd: ready, reloading, stopping, a line of status, and the watchdog.

Rule: sd_notify(3) over `NOTIFY_SOCKET`, one datagram a message. Sending never blocks and never fails the proxy: a
service manager that does not listen must not matter. The watchdog is fed by a timer of the event loop alone, so
systemd kills and restarts a process whose loop is stuck for longer than `WATCHDOG_USEC`.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from limiter.clock import Clock, Timer

_MICROSECONDS: Final = 1_000_000
_LONGEST_STATUS: Final = 200


class ServiceManager:
    """The connection to the service manager; does nothing if the process was not started by one.

    `pid` is compared with `WATCHDOG_PID` of `environ`, because child processes inherit the variables.
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
        """Report that clients are served; also at the end of a reload."""
        self._send("READY=1", _status(status))

    def reloading(self, monotonic_seconds: float) -> None:
        """Report that a reload began at `monotonic_seconds` (CLOCK_MONOTONIC)."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_seconds * _MICROSECONDS)}")

    def stopping(self, status: str, longest_seconds: float) -> None:
        """Report that the proxy stops, and extend the unit's stop timeout to `longest_seconds`."""
        extend = f"EXTEND_TIMEOUT_USEC={int(longest_seconds * _MICROSECONDS)}"
        self._send("STOPPING=1", extend, _status(status))

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(_status(text))

    def watch(self, clock: Clock) -> None:
        """Feed the watchdog from now on, twice in each `WATCHDOG_USEC`."""
        if self.watchdog_seconds:
            self._feed(clock)

    def close(self) -> None:
        """Stop feeding the watchdog and close the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _feed(self, clock: Clock) -> None:
        self._send("WATCHDOG=1")
        self._timer = clock.call_at(clock.time() + self.watchdog_seconds / 2, self._feed, clock)

    def _send(self, *assignments: str) -> None:
        if self._socket is not None:
            # Nobody listens, or the socket's queue is full: there is nobody left to report that to.
            with suppress(OSError):
                self._socket.sendto("\n".join(assignments).encode(), self._address)


def manager_of_this_process() -> ServiceManager:
    """Return the service manager of this process; a do-nothing one if systemd did not start it."""
    return ServiceManager(os.environ, os.getpid())


def _address(setting: str) -> str:
    # "@name" is a socket in the abstract namespace; Python lacks the families of all other forms but paths.
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
    # A line break would begin another assignment.
    return "STATUS=" + " ".join(text.split())[:_LONGEST_STATUS]
