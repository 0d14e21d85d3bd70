"""Processes of their own: run with a log, waited for by what they say, ended with all that they started."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["kill", "process", "wait_for"]


@contextmanager
def process(command: list[str], log: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with a process group of its own, and end the whole group in the end."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, start_new_session=True
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, as a machine that loses its power would."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def wait_for(text: str, log: Path, child: subprocess.Popen[bytes]) -> None:
    """Wait until a process has said something; it fails if the process ends before."""
    while text not in log.read_text(errors="replace"):
        try:
            child.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(log.read_text(errors="replace")[-3000:])
