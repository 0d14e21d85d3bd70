"""Own a disk in memory that fails as told, and threads that run when a test says so.

Rule: what the fake does without a fault, `proxy.net.spill.disk.DirectoryDisk` does as well
(`tests/unit/proxy/net/spill/test_disk.py` runs on both). A descriptor is a number of the fake's own, never used again.
"""

import asyncio
import errno
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from proxy.net.spill.disk import DirectoryDisk, DiskRoom
from proxy.net.spill.workers import WorkerThreads

T = TypeVar("T")


class FakeDisk(DirectoryDisk):
    """Files in memory; `faults` has for the name of a method the error that its next calls raise."""

    def __init__(self, free: int = 10**12, total: int = 10**12) -> None:
        self.files: dict[int, bytearray] = {}
        self.faults: dict[str, OSError] = {}
        self.free = free
        self.total = total
        self.writes: list[tuple[int, int, int]] = []
        self.is_shut = False
        self._numbers = itertools.count(1000)

    def create(self) -> int:
        self._fail("create")
        fd = next(self._numbers)
        self.files[fd] = bytearray()
        return fd

    def write(self, fd: int, piece: memoryview, position: int) -> None:
        self._fail("write")
        data = self._file(fd)
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        assert self._unwritten(fd, position, position + len(piece)), "space is written once"
        data[position : position + len(piece)] = piece
        self.writes.append((fd, position, len(piece)))

    def read(self, fd: int, position: int, count: int) -> bytes:
        self._fail("read")
        found = bytes(self._file(fd)[position : position + count])
        if len(found) < count:
            raise OSError(errno.EIO, "ended early")
        return found

    def close(self, fd: int) -> None:
        self._file(fd)
        del self.files[fd]

    def room(self) -> DiskRoom:
        self._fail("room")
        return DiskRoom(self.free, self.total)

    def shut(self) -> None:
        self.is_shut = True

    def fail(self, method: str, number: int) -> None:
        """Let all further calls of a method fail."""
        self.faults[method] = OSError(number, f"{method} fails")

    def _fail(self, method: str) -> None:
        if method in self.faults:
            raise self.faults[method]

    def _file(self, fd: int) -> bytearray:
        if fd not in self.files:
            raise OSError(errno.EBADF, "no such file")
        return self.files[fd]

    def _unwritten(self, fd: int, start: int, end: int) -> bool:
        return all(
            end <= position or start >= position + count for other, position, count in self.writes if other == fd
        )


class StandingWorkers(WorkerThreads):
    """Threads that stand still: a call runs when a test lets it, on the test's own thread."""

    def __init__(self) -> None:
        self.calls: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self.stopped = False

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.calls.append((future, call))
        return future

    def stop(self) -> None:
        self.stopped = True

    async def go_on(self, count: int = 1) -> None:
        """Run the next `count` calls, one after the other, with what the loop does after each."""
        for _ in range(count):
            future, call = self.calls.popleft()
            try:
                future.set_result(call())
            except OSError as error:
                future.set_exception(error)
            for _ in range(10):
                await asyncio.sleep(0)

    async def finish(self) -> None:
        """Run calls until there are none."""
        while self.calls:
            await self.go_on()
