"""Read lists back from the disk for sockets that have room, through a small pool that nothing else uses.

The pool bounds the bytes between the threads and the sockets. Bytes stay in the pool for one write: what the socket
does not take is dropped and read again, so a client that stops reading holds nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.core.counters import Counters, counter, gauge

if TYPE_CHECKING:
    from proxy.net.spill.file import SpillFile
    from proxy.net.spill.workers import WorkerThreads

READ_BACK_BYTES: Final = 8 * 1024 * 1024
LARGEST_READ_BYTES: Final = 256 * 1024
SMALLEST_READ_BYTES: Final = 16 * 1024
READERS: Final = 3
# A disk that has not answered for this long is taken for dead: the clients' own time-outs are 30 s.
READ_SECONDS: Final = 20.0

Arrived = Callable[[bytes | None], None]
HELD_BYTES: Final = gauge(
    "spill_read_back_bytes", "Bytes of lists on disk that were read, and are on their way to a socket.", "bytes"
)
READ_BYTES: Final = counter("spill_read_bytes", "Bytes of lists read back from disk.", "bytes")
READ_ERRORS: Final = counter(
    "spill_read_errors", "Reads from disk that failed; each closed a client (cause spill_read_failed)."
)


class DiskRead:
    """A read: waits for the pool, then for the disk, then for the socket; `end` gives the bytes back.

    `on_arrived` is called once with the bytes, or with None if the disk has failed, and not at all after `end`.
    """

    __slots__ = ("_pool", "count", "file", "on_arrived", "position", "state", "timer")

    WAITING: Final = 0
    AT_DISK: Final = 1
    ARRIVED: Final = 2
    ENDED: Final = 3

    def __init__(self, pool: "ReadBack", file: "SpillFile", position: int, count: int, on_arrived: Arrived) -> None:
        self._pool = pool
        self.file = file
        self.position = position
        self.count = count
        self.on_arrived: Arrived | None = on_arrived
        self.state = self.WAITING
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Return the bytes to the pool, at once or when the disk has answered; a second call does nothing."""
        self.on_arrived = None
        self.stop_clock()
        self._pool.ended(self)

    def stop_clock(self) -> None:
        """Wait without a limit from now on."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ReadBack:
    """The pool, and the reads that wait for it, in order; `on_failed` is called with each error of the disk."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: "WorkerThreads",
        counters: Counters,
        on_failed: Callable[[BaseException], None],
        limit: int = READ_BACK_BYTES,
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._on_failed = on_failed
        self._counters = counters
        self._limit = limit
        self._waiting: deque[DiskRead] = deque()
        self._reads = 0
        # The bytes between the disk and the sockets.
        self.held_bytes = 0
        counters.show(HELD_BYTES, lambda: self.held_bytes)
        # When the disk was last heard of.
        self._answered_at = -READ_SECONDS

    def __len__(self) -> int:
        return self._reads

    def read(self, file: "SpillFile", position: int, count: int, on_arrived: Arrived) -> DiskRead:
        """Begin to read `count` bytes of a list; `on_arrived` is never called before this method returns."""
        read = DiskRead(self, file, position, count, on_arrived)
        read.timer = self._loop.call_later(READ_SECONDS, self._too_late, read)
        self._reads += 1
        self._waiting.append(read)
        self._serve()
        return read

    def ended(self, read: DiskRead) -> None:
        """Called when a read's bytes are not needed any more."""
        if read.state in (DiskRead.AT_DISK, DiskRead.ENDED):
            return
        if read.state == DiskRead.ARRIVED:
            self.held_bytes -= read.count
        read.state = DiskRead.ENDED
        self._reads -= 1
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            read = self._waiting[0]
            if read.state == DiskRead.WAITING:
                if self.held_bytes and self.held_bytes + read.count > self._limit:
                    return
                read.state = DiskRead.AT_DISK
                self.held_bytes += read.count
                found = read.file.read(self._workers, read.position, read.count)
                found.add_done_callback(lambda done, read=read: self._arrived(read, done))  # type: ignore[misc]
            self._waiting.popleft()

    def _arrived(self, read: DiskRead, done: "asyncio.Future[bytes]") -> None:
        self._answered_at = self._loop.time()
        read.state = DiskRead.ARRIVED
        read.stop_clock()
        on_arrived = read.on_arrived
        if on_arrived is None or done.cancelled():
            self.ended(read)
        elif (error := done.exception()) is not None:
            self._fail(read, on_arrived, error)
        else:
            self._counters[READ_BYTES].value += read.count
            on_arrived(done.result())

    def _too_late(self, read: DiskRead) -> None:
        silent_since = self._answered_at + READ_SECONDS
        if silent_since > self._loop.time():
            # The disk answers; reads in line wait for its turn, as long as it takes.
            read.timer = self._loop.call_at(silent_since, self._too_late, read)
            return
        on_arrived, read.on_arrived, read.timer = read.on_arrived, None, None
        if on_arrived is not None:
            # At the disk the bytes stay in the pool until the thread is back.
            self._fail(read, on_arrived, TimeoutError(f"no answer of the disk in {READ_SECONDS:g} s"))

    def _fail(self, read: DiskRead, on_arrived: Arrived, error: BaseException) -> None:
        self._counters[READ_ERRORS].value += 1
        self._on_failed(error)
        self.ended(read)
        on_arrived(None)
