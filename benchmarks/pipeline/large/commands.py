"""A command as a user gives it, with what it and all its children used: time, processors, memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.pipeline.process import tree, tree_rss

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
            with suppress(psutil.Error):
                peak = max(peak, tree_rss(root))
                _note_cpu(root, used)
    return {
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(sum(used.values()), 1),
        "peak_rss_bytes": peak,
        "said": log.read_text(errors="replace").strip().splitlines()[-1:],
    }


def _note_cpu(root: psutil.Process, used: dict[tuple[int, float], float]) -> None:
    """Record the seconds of each process by itself: those of one that is gone stay."""
    for one in tree(root):
        with suppress(psutil.Error):
            times = one.cpu_times()
            used[one.pid, one.create_time()] = times.user + times.system
