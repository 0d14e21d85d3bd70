"""Read the kernel's numbers about this process for the standard metrics `process_*` of all Prometheus clients.

Rule: a file that is absent or malformed gives None. Files are read at scrape time; `proxy.core.process_memory` reads
the memory.
"""

import os
import resource
import time
from functools import cache
from pathlib import Path

from proxy.core.process_memory import PAGE_BYTES, MemoryPaths

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Index among the fields of /proc/<pid>/stat after the name, which may contain any character (proc_pid_stat(5)).
_START_TIME = 19


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


def max_fds() -> int | None:
    """Return the limit of open file descriptors; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
