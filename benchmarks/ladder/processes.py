"""Owns child processes: started, waited for, read about in /proc, and ended by pid whatever happens. Knows a
little Pulsar (CONNECT and CONNECTED), because being ready means to answer that."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

LADDER = Path(__file__).resolve().parent
CHECKOUT = LADDER.parent.parent
CACHE = LADDER.parent / ".cache"
LOGS = CACHE / "logs"
READY_POLL_SECONDS = 0.002
END_SECONDS = 10.0

# A CONNECT without proxy_to_broker_url: client_version "ladder", protocol_version 21.
_CONNECT_MESSAGE = b"\x0a\x06ladder\x20\x15"
_CONNECT_COMMAND = b"\x08\x02\x12" + bytes([len(_CONNECT_MESSAGE)]) + _CONNECT_MESSAGE
CONNECT_FRAME = (
    (len(_CONNECT_COMMAND) + 4).to_bytes(4, "big") + len(_CONNECT_COMMAND).to_bytes(4, "big") + _CONNECT_COMMAND
)
_CONNECTED = b"\x08\x03"


class LadderError(Exception):
    """Something that a person has to put right; its text is all they see."""


class Child:
    """A process that is ended when the block around it is left."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = LOGS / f"{name}.log"
        with self.log.open("wb") as log:
            self.started = time.monotonic()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.pid = self.process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ask the process to end, then insist."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_ready(self, port: int, seconds: float, context: ssl.SSLContext | None = None) -> float:
        """Return the seconds from start to the first CONNECTED on `port`; `LadderError` if it never comes."""
        deadline = self.started + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if handshake(port, context):
                return time.monotonic() - self.started
            time.sleep(READY_POLL_SECONDS)
        raise LadderError(f"{self.name} on port {port}: no CONNECTED within {seconds:.0f} s\n{self.tail()}")

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])

    def peak_rss_bytes(self) -> int:
        return self._status("VmHWM") * 1024

    def threads(self) -> int:
        return self._status("Threads")

    def _status(self, key: str) -> int:
        found = re.search(rf"^{key}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        if found is None:
            raise LadderError(f"{self.name}: no {key} in its status: it has ended\n{self.tail()}")
        return int(found.group(1))


def handshake(port: int, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a CONNECT on this port, under TLS if there is a context, is answered by CONNECTED."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=2) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain as client,
        ):
            client.sendall(CONNECT_FRAME)
            return client.recv(64)[8:10] == _CONNECTED
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


def end_on_signals() -> None:
    """Make SIGTERM unwind the blocks that end children, as Ctrl-C does."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
