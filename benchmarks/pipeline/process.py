"""An engine in a process of its own: runs when it is told to, and its memory is looked at from outside.

The worker's side is worker.py; they speak lines: `run` one way, the seconds it took the other way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final, Self

import psutil

from benchmarks.pipeline.engine import THREADS

__all__ = ["EngineProcess", "Run"]

SAMPLE_SECONDS: Final = 0.05
# As many as Spark's local[2].
LIMITS: Final[Mapping[str, str]] = {"POLARS_MAX_THREADS": str(THREADS), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class Run:
    """The time that a run took: of the clock, and of processors (all processes of the engine)."""

    seconds: float
    cpu_seconds: float


class EngineProcess:
    """A worker; its peak RSS is the largest sum over it and its children, workers of workers included."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.peak_rss_bytes = 0
        self.start_seconds = 0.0
        self._over = Event()
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pipeline.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | LIMITS,
        )
        self._root = psutil.Process(self._process.pid)
        self._watcher = Thread(target=self._watch, name="rss", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        self._expect("ready")
        self.start_seconds = round(time.monotonic() - self._began, 2)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._watcher.join()

    def run(self) -> Run:
        """Ask the worker to do the work once; raises RuntimeError if the worker died."""
        assert self._process.stdin is not None
        before = _tree_cpu(self._root)
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        _, seconds = self._expect("took").split()
        return Run(float(seconds), round(_tree_cpu(self._root) - before, 2))

    def _expect(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line
        raise RuntimeError(f"the worker {self._process.args!r} ended, expected it to say {word!r}")

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):
                self.peak_rss_bytes = max(self.peak_rss_bytes, _tree_rss(self._root))


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    """Yield a process and all its children, theirs included."""
    yield root
    yield from root.children(recursive=True)


def _tree_rss(root: psutil.Process) -> int:
    """Add up their RSS, bytes; one that ends meanwhile has none."""
    total = 0
    for one in _tree(root):
        with suppress(psutil.Error):
            total += one.memory_info().rss
    return total


def _tree_cpu(root: psutil.Process) -> float:
    """Add up what a worker and its children have used, and what children of theirs had that are gone."""
    total = 0.0
    for one in _tree(root):
        with suppress(psutil.Error):
            used = one.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total
