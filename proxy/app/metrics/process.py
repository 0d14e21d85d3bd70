"""Numbers about this process: the kernel's, for the metrics `process_*` of all Prometheus clients, and its loop's lag.

Rule: a file that is absent or malformed gives None. Files are read at scrape time; `proxy.core.process_memory` reads
the memory. The lag is measured by one timer, ten times a second, at some microseconds each; a loop that is blocked for
a second gets one sample of a second, not ten.
"""

import asyncio
import os
import time
from functools import cache
from pathlib import Path
from typing import Final

from proxy.core.counters import PREFIX, Counters, Derived
from proxy.core.process_memory import PAGE_BYTES, MemoryPaths
from proxy.telemetry.durations import Durations

PERIOD_SECONDS: Final = 0.1
WINDOW_SECONDS: Final = 60.0
_SLICES: Final = 6
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Index among the fields of /proc/<pid>/stat after the name, which may contain any character (proc_pid_stat(5)).
_START_TIME = 19
LAG: Final[Derived[Durations]] = Derived(
    f"{PREFIX}event_loop_lag_seconds", "summary",
    "Delay of the event loop's timers, quantiles of the last minute; every wait is longer by this delay.",
    lambda durations: durations, labels=("quantile",), unit="seconds",
)  # fmt: skip


def cpu_seconds() -> float:
    """Return the processor time of all threads of this process."""
    return time.process_time()


def start_time_seconds(paths: MemoryPaths) -> float | None:
    """Return the Unix time at which the process started."""
    fields = (_read(paths.process / "stat") or "").rpartition(")")[2].split()
    if len(fields) <= _START_TIME or not fields[_START_TIME].isdecimal():
        return None
    return _booted_at() + int(fields[_START_TIME]) / _TICKS_PER_SECOND


@cache
def _booted_at() -> float:
    """Return the Unix time of the boot, the same at each call: a start time that moves looks like a restart."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def virtual_bytes(paths: MemoryPaths) -> int | None:
    """Return the size of the address space."""
    fields = (_read(paths.process / "statm") or "").split()
    return int(fields[0]) * PAGE_BYTES if fields and fields[0].isdecimal() else None


def open_fds(paths: MemoryPaths) -> int | None:
    """Return the number of open file descriptors."""
    directory = paths.process / "fd"
    try:
        # Since Linux 6.2 the directory's size is the count; listing 10,000 entries takes milliseconds.
        return os.stat(directory).st_size or len(os.listdir(directory))
    except OSError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


class LoopLag:
    """The lag of one loop, from `start` to `stop`: how late timers run, and so how much everything else is delayed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters) -> None:
        self.durations = Durations(loop.time, WINDOW_SECONDS, _SLICES)
        counters.derive((LAG,), lambda: self.durations)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        self._wait()

    def stop(self) -> None:
        """Stop measuring; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        due = self._loop.time() + PERIOD_SECONDS
        self._timer = self._loop.call_at(due, self._came, due)

    def _came(self, due: float) -> None:
        # uvloop's timers count milliseconds, so a timer may run a fraction of a millisecond too early.
        self.durations.add(max(0.0, self._loop.time() - due) * 1000)
        self._wait()
