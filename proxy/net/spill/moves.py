"""Move lists from memory to disk, two at a time, in steps of 1 MiB.

A list is sent from memory until its last step is on the disk. So a disk that is full, fails or hangs changes nothing
for the list's readers, and a list whose readers have gone is given up between two steps.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from proxy.core.counters import Counters, counter, gauge
from proxy.core.tasks import TaskScope
from proxy.net.spill.body import SpillableBody
from proxy.net.spill.disk import DirectoryDisk
from proxy.net.spill.file import SpillFile
from proxy.net.spill.space import Kept, SpaceReservation, SpillSpace, leaves_enough
from proxy.net.spill.workers import WorkerThreads

MOVES_AT_ONCE: Final = 2
STEP_BYTES: Final = 1024 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
MOVING: Final = gauge("spill_moving", "Lists that are being written to disk.")
MOVED_LISTS: Final = counter(
    "spill_lists", "Lists that moved to disk because their readers were slow while others waited for memory."
)
WRITTEN_BYTES: Final = counter("spill_written_bytes", "Bytes of lists written to disk.", "bytes")


class ListMoves:
    """The moves under way; `on_kept` is called with the reason why a list stays in memory, `on_free` after each end."""

    def __init__(
        self,
        disk: DirectoryDisk,
        space: SpillSpace,
        workers: WorkerThreads,
        counters: Counters,
        on_kept: Callable[[Kept, str], None],
        on_free: Callable[[], None],
        on_file_closed: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._space = space
        self._workers = workers
        self._counters = counters
        self.under_way = 0
        counters.show(MOVING, lambda: self.under_way)
        self._on_kept = on_kept
        self._on_free = on_free
        self._on_file_closed = on_file_closed
        self._scope = TaskScope(lambda error: counters.internal_error(error, "list to disk"))
        self._closed = False
        # Made when first needed, then used again: a list's own memory never waits for a thread.
        self._buffers: list[bytearray] = []

    @property
    def free(self) -> bool:
        """Return whether another move may begin; after `close` each would end, and call for the next, on one stack."""
        return not self._closed and self.under_way < MOVES_AT_ONCE

    def start(self, body: SpillableBody, reservation: SpaceReservation) -> None:
        """Begin to move a list; the move owns `reservation` from now on."""
        body.moving = True
        self.under_way += 1
        file = SpillFile(self._disk, self._space, reservation, self._workers, body.first_needed, self._on_file_closed)
        self._scope.start(self._move(body, file), lambda: self._ended(body, file))

    async def close(self) -> None:
        """Cancel the moves under way: their lists have ended."""
        self._closed = True
        self._scope.cancel()
        await self._scope.emptied()

    def _ended(self, body: SpillableBody, file: SpillFile) -> None:
        body.moving = False
        self.under_way -= 1
        if body.file is not file:
            file.close()
        self._on_free()

    async def _move(self, body: SpillableBody, file: SpillFile) -> None:
        try:
            if await self._written(body, file):
                self._counters[MOVED_LISTS].value += 1
                self._space.disk_full(False)
                self._space.failing = False
                body.moved(file)
        except OSError as error:
            full = error.errno in _FULL
            body.kept = self._space.failing = True
            self._space.disk_full(full)
            self._on_kept(Kept.DISK_FULL if full else Kept.DISK_ERROR, error.strerror or str(error))

    async def _written(self, body: SpillableBody, file: SpillFile) -> bool:
        """Write the list's rest; return whether anybody still wants it. Raises OSError."""
        unwritten = self._space.unwritten
        # A cancel ends the wait, not the thread: each file counts the threads that have its descriptor.
        room = await asyncio.shield(self._workers.run(self._disk.room))
        if not leaves_enough(room.free, room.total, unwritten):
            raise OSError(errno.ENOSPC, "a tenth of the file system stays free")
        await asyncio.shield(file.create(self._workers))
        position = file.start
        while True:
            if body.closed:
                return False
            # The reader may have passed what was about to be written.
            position = max(position, body.first_needed)
            if position >= body.size:
                return True
            position += await self._step(body, file, position)

    async def _step(self, body: SpillableBody, file: SpillFile, position: int) -> int:
        buffer = self._buffers.pop() if self._buffers else bytearray(STEP_BYTES)
        count = body.copy(position, memoryview(buffer))
        if not count:
            raise OSError(errno.EIO, "a list ended before its end")
        # Not in a `finally`: after a cancel the thread still reads the buffer.
        try:
            await asyncio.shield(file.write(self._workers, memoryview(buffer)[:count], position))
        except OSError:
            self._buffers.append(buffer)
            raise
        self._buffers.append(buffer)
        self._counters[WRITTEN_BYTES].value += count
        return count
