"""Owns one child process: its log file, its start, its readiness, its end by process id.

Obeys one rule: nothing it started outlives the tests, and a child that dies says why. Knows nothing of
Pulsar.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.patience import patient

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.05
_TAIL_LINES = 30

# Loaded before any fork: a child between fork and exec must not import.
_libc = ctypes.CDLL(None, use_errno=True)


class ProcessFailedError(Exception):
    """Report a child that died or never got ready, with the end of its log."""


def _die_with_parent() -> None:
    # A test run that is killed runs no fixture teardown; without this its broker would stay. To the kernel the parent
    # is the thread that starts a child.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Lines:
    """The whole lines of a file that another process writes, or has not begun to write."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0

    def news(self) -> list[str]:
        """Return the lines that are there since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode().splitlines()


class ChildProcess:
    """Run a command with its output in `log`; it may be told lines."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        is_told: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if is_told else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        """Name the process."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, is_ready: Callable[[], bool], timeout: float) -> None:
        """Wait until `is_ready()` or raise ProcessFailedError with the log's end; `timeout` is an idle machine's."""
        began = time.monotonic()
        while not is_ready():
            code = self._process.poll()
            if code is not None:
                raise ProcessFailedError(f"{self.name} ended with {code} before it was ready\n{self.tail()}")
            # Anew: what keeps the machine busy may have come since.
            patience = patient(timeout)
            if time.monotonic() - began > patience:
                raise ProcessFailedError(f"{self.name} was not ready after {patience:.0f} s\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, which must run."""
        self.ensure_running()
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process by SIGKILL; it must have run until now."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def ensure_running(self) -> None:
        """Raise ProcessFailedError with the log's end if the process has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise ProcessFailedError(f"{self.name} ended with {code} before it was told to\n{self.tail()}")

    def wait(self) -> int:
        """Wait for the process to end by itself and return its exit code."""
        return self._process.wait()

    def stop(self, timeout: float) -> int:
        """End the process by SIGTERM, by SIGKILL after `timeout` seconds, and return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(patient(timeout))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
