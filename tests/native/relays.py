"""An engine with pairs of sockets whose far ends belong to the test."""

import fcntl
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from proxy.relay.native_api import linger_millis
from tests.support.patience import patient

BUFFER_BYTES = 64 * 1024
TO_BROKER, TO_CLIENT = 0, 1
FRAMES, DRAINED, INSIDE, UNWALKABLE, PASSED, ENDED, THREAD_DIED = range(1, 8)
CLIENT_CLOSED, BROKER_CLOSED, CLIENT_RESET, BROKER_RESET, WRITE_STALLED, BY_PYTHON, INTERNAL = range(1, 8)


class Event(NamedTuple):
    """An event as the engine gives it."""

    kind: int
    pair: int
    a: int
    b: int
    c: int
    d: int
    e: int
    failure: str = ""


@dataclass(frozen=True)
class Pair:
    """A pair, and the far ends of its sockets."""

    id: int
    client: socket.socket
    broker: socket.socket


def _duplicate(near: socket.socket) -> int:
    near.setblocking(False)
    return fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, 0)


class Relays:
    """An engine; closes the far ends and stops."""

    def __init__(self, extension: Any, threads: int) -> None:
        self.engine = extension.RelayEngine(threads, BUFFER_BYTES, linger_millis())
        self._far: list[socket.socket] = []
        self._seen: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for far in self._far:
            far.close()
        self.engine.stop()

    def join(self, to_client: bytes = b"", to_broker: bytes = b"", *, scan: bool = False) -> Pair:
        """Make a pair."""
        fds = []
        for _ in range(2):
            near, far = socket.socketpair()
            with near:
                fds.append(_duplicate(near))
            far.settimeout(patient(10))
            self._far.append(far)
        pair = self.engine.join(*fds, to_client, to_broker, scan)
        return Pair(pair, *self._far[-2:])

    def event(self) -> Event:
        """Wait for the next event."""
        if not self._seen:
            ready, _, _ = select.select([self.engine.event_fd], [], [], patient(10))
            assert ready, "no event came"
            self._seen = [Event(*event) for event in self.engine.events(100)]
        return self._seen.pop(0)


def settled(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, at most as long as a slow machine takes; the test looks whether it does."""
    until = time.monotonic() + patient(10)
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)


def received(far: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes."""
    data = bytearray()
    while len(data) < count:
        piece = far.recv(count - len(data))
        assert piece, f"the end came after {len(data)} bytes of {count}"
        data += piece
    return bytes(data)
