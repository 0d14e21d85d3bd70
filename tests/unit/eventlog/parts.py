"""Own what the tests of the event log are built from: small events, a store that does what a test says, a full disk."""

import errno
import gzip
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eventlog.buffer import EventBuffer, Stamp, Tee
from eventlog.drain import Drain, StoreError
from eventlog.files import FileSettings, FileStore

BOOT = "0123456789abcdef"
MIB = 1024 * 1024
# The head of a member as zlib writes it: deflate, no flags.
HEADER = b"\x1f\x8b\x08\x00"


def encode(event: Mapping[str, object]) -> bytes:
    return json.dumps(event).encode()


def tee(buffers: Sequence[EventBuffer], failed: Callable[[Exception], None] | None = None) -> Tee:
    def fail(error: Exception) -> None:
        pytest.fail(repr(error))

    return Tee(buffers, encode, failed or fail)


def file_settings(directory: Path, **changes: Any) -> FileSettings:
    settings: dict[str, Any] = {
        "directory": directory, "proxy_id": "proxy", "boot_id": BOOT, "max_bytes": MIB, "max_age_seconds": 60.0,
        "max_total_bytes": 0,
    }  # fmt: skip
    return FileSettings(**(settings | changes))


class MemoryStore:
    """A store of lists; `failures` are raised first, one a call."""

    def __init__(self) -> None:
        self.blocks: list[list[dict[str, Any]]] = []
        self.failures: list[StoreError] = []
        self.ticks = 0
        self.opened = 0
        self.closed = 0

    def open(self) -> None:
        self.opened += 1

    def write(self, lines: list[bytes], now: float) -> int:
        if self.failures:
            raise self.failures.pop(0)
        self.blocks.append([json.loads(line) for line in lines])
        return sum(map(len, lines))

    def tick(self, now: float) -> None:
        self.ticks += 1

    def close(self) -> None:
        self.closed += 1

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for block in self.blocks for event in block]


class Line:
    """A buffer, the drain behind it and its store."""

    def __init__(self, store: Any = None, limit_bytes: int = MIB, flush_seconds: float = 1.0) -> None:
        self.store: Any = MemoryStore() if store is None else store
        self.buffer = EventBuffer(limit_bytes)
        self.reports: list[str] = []
        self.tee = tee([self.buffer], lambda error: self.reports.append(repr(error)))
        stamp = Stamp("proxy", BOOT, encode)
        report, nothing = self.reports.append, lambda: None
        self.drain = Drain(self.buffer, stamp, self.store, flush_seconds, report, nothing, lambda: 0.0)

    def put(self, count: int = 1, **fields: object) -> None:
        for _ in range(count):
            self.tee.put({"kind": "get_topics", **fields})


def file_line(directory: Path, **changes: Any) -> Line:
    return Line(FileStore(file_settings(directory, **changes), lambda note: None))


def finished(directory: Path) -> list[Path]:
    return sorted(directory.glob("events-*.jsonl.gz"))


def hidden(directory: Path) -> list[Path]:
    return sorted(directory.glob(".*"))


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read a file that must be sound: what is cut or damaged raises."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def events_in(directory: Path) -> list[dict[str, Any]]:
    return [event for path in finished(directory) for event in read_events(path)]


def seqs(*paths: Path) -> list[Any]:
    return [event["seq"] for path in paths for event in read_events(path)]


def refuse(patch: pytest.MonkeyPatch, call: str, number: int = errno.EIO) -> None:
    """Have a call of the system fail, such as `os.fsync`."""

    def fail(*_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    patch.setattr(call, fail)


class Disk:
    """Bytes that `os.write` takes to files, before it fails as a full disk does: with half of what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._write: Callable[[int, Any], int] = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        written = self._write(descriptor, data[: self.room])
        self.room -= written
        return written
