"""Measures the disk under a directory, so that a figure about lists on disk can be read beside it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

MEASURED_BYTES = 256 * 1024 * 1024
STEP_BYTES = 1024 * 1024


def rates(directory: Path) -> dict[str, float]:
    """Return the MB/s that the disk writes and reads in steps of 1 MiB, synced and past the page cache."""
    directory.mkdir(parents=True, exist_ok=True)
    step = os.urandom(STEP_BYTES)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        fd = file.fileno()
        writes = _rate(lambda at: _write(fd, step, at))
        reads = _rate(lambda at: len(os.pread(fd, STEP_BYTES, at)))
    return {"write_mb_per_second": writes, "read_mb_per_second": reads}


def _rate(step: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for at in range(0, MEASURED_BYTES, STEP_BYTES):
        step(at)
    return round(MEASURED_BYTES / (time.perf_counter() - began) / 1e6, 1)


def _write(fd: int, step: bytes, at: int) -> None:
    os.pwrite(fd, step, at)
    os.fdatasync(fd)
    os.posix_fadvise(fd, at, STEP_BYTES, os.POSIX_FADV_DONTNEED)
