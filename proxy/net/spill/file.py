"""A file with the rest of one list: its descriptor is closed, and its space given back, when no thread uses it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from proxy.core.threads import NoThread
from proxy.net.spill.disk import DirectoryDisk
from proxy.net.spill.space import SpaceReservation, SpillSpace
from proxy.net.spill.workers import WorkerThreads

T = TypeVar("T")


class SpillFile:
    """The bytes of a list from `start` on; `closed` is set when nobody wants them any more."""

    __slots__ = ("_calls", "_closers", "_disk", "_fd", "_on_closed", "_reservation", "_space", "closed", "start")

    def __init__(
        self,
        disk: DirectoryDisk,
        space: SpillSpace,
        reservation: SpaceReservation,
        closers: WorkerThreads,
        start: int,
        on_closed: Callable[[], None],
    ) -> None:
        self.start = start
        self.closed = False
        self._disk = disk
        self._space = space
        self._reservation = reservation
        self._closers = closers
        self._on_closed = on_closed
        self._fd = -1
        # Calls in threads, which have the descriptor: the kernel gives the number of a closed one to the next socket.
        self._calls = 0

    def create(self, workers: WorkerThreads) -> "asyncio.Future[None]":
        """Make the file."""
        return self._run(workers, self._create)

    def write(self, workers: WorkerThreads, piece: memoryview, position: int) -> "asyncio.Future[None]":
        """Write the bytes of the list that begin at `position`."""
        disk, fd, offset = self._disk, self._fd, position - self.start
        written = self._run(workers, lambda: disk.write(fd, piece, offset))
        written.add_done_callback(lambda done: self._written(done, len(piece)))
        return written

    def read(self, workers: WorkerThreads, position: int, count: int) -> "asyncio.Future[bytes]":
        """Read `count` bytes of the list from `position`."""
        disk, fd, offset = self._disk, self._fd, position - self.start
        return self._run(workers, lambda: disk.read(fd, offset, count))

    def close(self) -> None:
        """Close the file as soon as no thread uses it; a second call does nothing."""
        if not self.closed:
            self.closed = True
            self._end_if_unused()

    def _create(self) -> None:
        self._fd = self._disk.create()

    def _written(self, done: "asyncio.Future[None]", count: int) -> None:
        if not done.cancelled() and done.exception() is None:
            self._space.written(self._reservation, count)

    def _run(self, workers: WorkerThreads, call: Callable[[], T]) -> "asyncio.Future[T]":
        future = workers.run(call)
        # The caller may be cancelled; the thread is not, so the count must follow the thread.
        self._calls += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, done: "asyncio.Future[T]") -> None:
        if not done.cancelled():
            # An error is the caller's, who may have gone.
            done.exception()
        self._calls -= 1
        if self.closed:
            self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._calls:
            return
        fd, self._fd = self._fd, -1
        if fd < 0:
            self._ended()
            return
        # The file system frees the blocks in this call, which may take long.
        closing = self._closers.run(lambda: self._disk.close(fd))
        closing.add_done_callback(lambda done: self._closing_done(done, fd))

    def _closing_done(self, done: "asyncio.Future[None]", fd: int) -> None:
        # The descriptor is closed even if the call reports an error: close(2).
        if not done.cancelled() and isinstance(done.exception(), NoThread):
            # A list at most, on the loop: better than a descriptor and space that never come back.
            with suppress(OSError):
                self._disk.close(fd)
        self._ended()

    def _ended(self) -> None:
        self._space.release(self._reservation)
        self._on_closed()
