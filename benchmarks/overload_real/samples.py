"""Owns what is seen from outside while a run goes on: the memory of the proxy and of its sockets, and busy cores.

Memory is not the proxy's own word: anonymous memory is that of its cgroup, and the kernel memory of its sockets is what
`ss` says of each, added up as the kernel counts SO_MEMINFO.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy
from tests.support.memory_group import MemoryGroup

_PERIOD_SECONDS: Final = 0.25
_SKMEM: Final = re.compile(r"skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),o\d+,bl(\d+)")


class Sample(NamedTuple):
    """A sample of one moment: memory of the process and its sockets in bytes, and what the throttle said of it."""

    at: float
    process_bytes: int
    socket_bytes: int
    paused: int
    told_bytes: int

    @property
    def used_bytes(self) -> int:
        """Return the memory of the process and of its sockets."""
        return self.process_bytes + self.socket_bytes


class Sampler:
    """Takes a sample four times a second, until the block ends."""

    def __init__(self, proxy: Proxy, group: MemoryGroup) -> None:
        self._proxy, self._group = proxy, group
        self.samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def since(self, moment: float) -> list[Sample]:
        """Return the samples from a moment on (time.monotonic)."""
        return [sample for sample in self.samples if sample.at >= moment]

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_SECONDS):
            try:
                self.samples.append(self._sample())
            except (OSError, LookupError):
                # The proxy has ended, or is about to.
                return

    def _sample(self) -> Sample:
        page = proxy_metrics(self._proxy)
        told = sum(page.family("pulsar_proxy_overload_memory_used_bytes").values())
        paused = page("overload_paused_connections", what="paused")
        return Sample(
            time.monotonic(), self._group.used_bytes(), socket_bytes(self._proxy.process.pid), int(paused), int(told)
        )


def socket_bytes(pid: int) -> int:
    """Return the kernel memory of a process's TCP sockets: queues, backlog and what is allocated ahead."""
    done = subprocess.run(["ss", "-tmnpHO"], capture_output=True, text=True, timeout=20, check=True)
    lines = [line for line in done.stdout.splitlines() if f"pid={pid}," in line]
    return sum(sum(map(int, found.groups())) for line in lines if (found := _SKMEM.search(line)))


class BusyCores:
    """The cores that were busy since it was made, of the whole machine."""

    def __init__(self) -> None:
        self._began, self._idle = time.monotonic(), _idle_seconds()

    def so_far(self, cores: int) -> float:
        """Return the part of the cores that was busy, 0 to 1."""
        seconds = time.monotonic() - self._began
        return 1 - (_idle_seconds() - self._idle) / (seconds * cores)


def _idle_seconds() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / 100
