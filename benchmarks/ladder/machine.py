"""Owns the facts that a figure is worth nothing without: day, machine and versions. No host names, no paths."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path


def today() -> str:
    """Return the day of a run, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def _memory_mib() -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found.group(1)) // 1024 if found else 0


def cores() -> int:
    """Return how many cores the runner, and so all that it starts, may use."""
    return len(os.sched_getaffinity(0))


def first_line(*command: str) -> str:
    """Return the first line that a version command prints, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return "not installed"
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0].strip() if lines else "unknown"


def facts() -> dict[str, str | int]:
    """Return what the report prints under its tables."""
    kernel = re.match(r"[0-9.]+", platform.release())
    java = re.search(r'"([^"]+)"', first_line("java", "-version"))
    haproxy = re.search(r"version (\S+)", first_line("haproxy", "-v"))
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_mib": _memory_mib(),
        "kernel": kernel.group(0) if kernel else "unknown",
        "python": platform.python_version(),
        "java": java.group(1) if java else "not installed",
        "java_proxy": "4.0.8",
        "haproxy": haproxy.group(1) if haproxy else "not installed",
        "rustc": first_line("rustc", "--version").split(" (")[0],
    }
