"""Run broker and proxy as child processes: start them, read what they say and hold, end them by id.

Rule: no child outlives its `with` block, whatever happens in the block. Each child has a process group of its own, so
that Ctrl-C reaches only this process, which then ends the children in order.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from proxy.auth.failures import SettingFault
from proxy.cli.demo.broker import LOOPBACK
from proxy.core.native import DO_WITHOUT, native
from proxy.core.process_memory import MemoryPaths, peak_resident_bytes, resident_bytes
from proxy.net.spill.directory import check_path
from proxy.relay.threads import missing_engine

# A second is enough, but not on a machine that does much else.
READY_SECONDS: Final = 90.0
STOP_SECONDS: Final = 8.0
ANSWER_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_TAIL_LINES: Final = 12
_IMPORT_ROOT: Final = Path(__file__).resolve().parents[3]


class ChildFailed(Exception):
    """A child did not start or did not print the expected line; the message holds its last lines."""


class Child:
    """Run `python -m <module> <arguments>` until the block ends; its output goes to `log` in `directory`."""

    def __init__(self, module: str, arguments: Sequence[str], directory: Path) -> None:
        self.module = module
        self.log = directory / f"{module.rpartition('.')[2]}.log"
        paths = [str(_IMPORT_ROOT), os.environ.get("PYTHONPATH", "")]
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                process_group=0,
            )
        self.pid = self._process.pid
        self._memory = MemoryPaths(process=Path(f"/proc/{self.pid}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """Return the resident set size in bytes; 0 when the process has ended."""
        return resident_bytes(self._memory) or 0

    def peak_resident_bytes(self) -> int:
        """Return the kernel's high-water mark of the resident set size in bytes; 0 when the process has ended."""
        return peak_resident_bytes(self._memory) or 0

    async def said(self, key: str, seconds: float = READY_SECONDS) -> dict[str, Any]:
        """Return the first line of JSON with `key`; raises ChildFailed if the child ends or is too slow."""
        deadline = asyncio.get_running_loop().time() + seconds
        while (line := self.find(key)) is None:
            if not self.running:
                raise self.failed(f"ended with code {self._process.returncode}")
            if asyncio.get_running_loop().time() > deadline:
                raise self.failed(f"printed no {key!r} within {seconds:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        return line

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the first line of JSON with `key` in the output so far, or None."""
        for text in self.log.read_text(errors="replace").splitlines():
            with suppress(ValueError, RecursionError):
                line = json.loads(text)
                if isinstance(line, dict) and key in line:
                    return line
        return None

    async def ended(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        return await asyncio.to_thread(self._process.wait)

    def failed(self, what: str) -> ChildFailed:
        """Return the exception that says what happened, and what the child printed last."""
        return ChildFailed(f"{self.module} {what}\n{self.tail()}")

    def tail(self) -> str:
        """Return the last lines of the output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def stop(self) -> None:
        """End the process: SIGTERM, and SIGKILL if it takes longer than STOP_SECONDS."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def proxy_child(directory: Path, options: argparse.Namespace, keys: Mapping[str, object]) -> Child:
    """Start a proxy with the keys of a scenario and those that the options set; its file is `proxy.conf`."""
    lines: dict[str, object] = {
        "servicePort": 0,
        "webServicePort": 0,
        "bindAddress": LOOPBACK,
        "clusterName": "demo",
        "brokerProxyAllowedTargetPorts": "*",
        "maxConcurrentInboundConnections": max(10_000, options.connections),
        "shutdownPreDrainMillis": 0,
        "shutdownDrainMillis": 2000,
        **keys,
    }
    path = directory / "proxy.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    words = ["serve", f"--config={path}", *(f"--set={word}" for word in options.set)]
    if missing := missing_engine(native()):
        print(f"{missing}: the proxy runs {DO_WITHOUT}", file=sys.stderr)
        words.append(DO_WITHOUT)
    return Child("proxy", words, directory)


def directory_for_lists(place: Path) -> Path | None:
    """Return a directory for lists on disk to configure below a place; None if the proxy would refuse it."""
    try:
        check_path(str(place))
    except (SettingFault, OSError):
        return None
    return place / "lists"


async def metrics(port: int) -> dict[str, float]:
    """Return the proxy's metrics, without the label of the cluster; raise OSError or TimeoutError if it is gone."""
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = (await reader.read(-1)).decode()
        finally:
            writer.close()
    lines = re.findall(r'^pulsar_proxy_(\w+)\{cluster="[^"]*",?(.*)\} (\S+)$', answer, re.MULTILINE)
    return {f"{name}{{{labels}}}" if labels else name: float(number) for name, labels, number in lines}
