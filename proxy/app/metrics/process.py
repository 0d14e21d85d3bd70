"""What the kernel says about this process, under the names that all Prometheus clients use: `process_*`.

Rule: a file that is absent or strange gives None. Read at scrape time; memory is `proxy.core.process_memory`'s.
"""

import os
import resource
import time
from functools import cache
from pathlib import Path

from proxy.core.process_memory import PAGE_BYTES, MemoryPaths

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/<pid>/stat behind the name, which may hold anything (proc_pid_stat(5)).
_START_TIME = 19


def cpu_seconds() -> float:
    """Give the processor time that all threads of this process used."""
    return time.process_time()


def start_time_seconds(paths: MemoryPaths) -> float | None:
    """Give when the process began, Unix time."""
    fields = (_read(paths.process / "stat") or "").rpartition(")")[2].split()
    if len(fields) <= _START_TIME or not fields[_START_TIME].isdecimal():
        return None
    return _booted_at() + int(fields[_START_TIME]) / _TICKS_PER_SECOND


@cache
def _booted_at() -> float:
    """Give when the machine was booted, Unix time, the same at each call: a start that moves looks like a restart."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def virtual_bytes(paths: MemoryPaths) -> int | None:
    """Give the size of the address space."""
    fields = (_read(paths.process / "statm") or "").split()
    return int(fields[0]) * PAGE_BYTES if fields and fields[0].isdecimal() else None


def open_fds(paths: MemoryPaths) -> int | None:
    """Count the open file descriptors."""
    directory = paths.process / "fd"
    try:
        # Linux says the count as the directory's size since 6.2; a list of 10,000 takes milliseconds.
        return os.stat(directory).st_size or len(os.listdir(directory))
    except OSError:
        return None


def max_fds() -> int | None:
    """Give how many file descriptors may be open; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
