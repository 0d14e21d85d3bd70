"""A command as a user gives it, with what it and all its children used: time, processors, memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

__all__ = ["looked_at"]

SAMPLE_SECONDS: Final = 0.2


def looked_at(words: Sequence[str], log: Path) -> dict[str, Any]:
    """Run a command to its end; gives what it used, and its exit code.

    Memory is the largest sum of RSS over the process and its children: what they share counts several times.
    """
    used: dict[tuple[int, float], float] = {}
    peak = 0
    began = time.monotonic()
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            peak = max(peak, _sample(root, used))
    return {
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(sum(used.values()), 1),
        "peak_rss_bytes": peak,
        "said": log.read_text(errors="replace").strip().splitlines()[-1:],
    }


def _sample(root: psutil.Process, used: dict[tuple[int, float], float]) -> int:
    rss = 0
    # A process may end between any two of these.
    with suppress(psutil.Error):
        for one in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                times = one.cpu_times()
                used[one.pid, one.create_time()] = times.user + times.system
                rss += one.memory_info().rss
    return rss
