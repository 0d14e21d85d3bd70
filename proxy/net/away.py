"""Bodies that threads of the native extension write to their sockets, past the event loop (docs/adr/0045).

Rules:
- Only bytes in a file that never changes go to a thread, and the thread has descriptors of its own: whatever is closed
  or given a new number here, the thread sends those bytes to that socket.
- A body goes to a thread when its socket has room, and has begun then: a cancel from then on cuts a frame.
- A body that nobody waits for any more is let go of a round of its thread later; nobody is told.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from proxy.core.native import RelayEngine

# Below this a body is sent at once by the loop: less work than to tell a thread and to be told.
LEAST_BYTES: Final = 256 * 1024
# Each body takes two descriptors. The loop writes more bodies than these: most of so many wait for their clients.
MOST_BODIES: Final = 512


class Pages:
    """A body whose bytes all lie in a file, and never change."""

    __slots__ = ("pages_fd", "threads")

    def __init__(self, pages_fd: int) -> None:
        self.pages_fd = pages_fd
        # The threads that have had the body.
        self.threads: RelayEngine | None = None

    def close(self) -> None:
        """Close the file, in a thread if threads have had the body: to free a MiB takes 0.1 ms. Repeats do nothing."""
        fd, self.pages_fd = self.pages_fd, -1
        # A body that is over keeps no engine, whose descriptors go with the last reference.
        threads, self.threads = self.threads, None
        if fd >= 0 and (threads is None or not threads.close_pages(fd)):
            os.close(fd)


W = TypeVar("W")


class AwayWrites(Generic[W]):
    """The writes whose bodies threads have, by the bodies' numbers."""

    def __init__(self) -> None:
        self._threads: RelayEngine | None = None
        self._writes: dict[int, W] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def start(self, threads: "RelayEngine") -> None:
        """Use `threads` from now on."""
        self._threads = threads

    def stop(self) -> list[W]:
        """Return the writes whose bodies no thread has told the end of, and use no threads any more."""
        self._threads = None
        writes = list(self._writes.values())
        self._writes.clear()
        return writes

    def takes(self, size: int) -> bool:
        """Return whether a thread may write a body of that size."""
        return self._threads is not None and size >= LEAST_BYTES and len(self._writes) < MOST_BODIES

    def take(self, write: W, fd: int, prefix: bytes, pages: Pages, size: int) -> int | None:
        """Return the number of a body that a thread writes now, behind `prefix`; None if the loop is to write."""
        if self._threads is None:
            return None
        try:
            number = self._threads.write(fd, prefix, pages.pages_fd, size)
        except (OSError, RuntimeError):
            # No descriptor is left, or the threads are about to end.
            return None
        self._writes[number] = write
        pages.threads = self._threads
        return number

    def find(self, number: int) -> W | None:
        """Return the write whose body a thread has; None if nobody waits for that body any more."""
        return self._writes.get(number)

    def ended(self, number: int) -> W | None:
        """Return the write whose body no thread has any more; None if nobody waits for that body."""
        return self._writes.pop(number, None)

    def let_go(self, number: int) -> None:
        """End the write of a body that nobody waits for; do nothing if the body has ended."""
        if self._writes.pop(number, None) is not None and self._threads is not None:
            self._threads.end_write(number)

    def positions(self, each: Callable[[W, int], None]) -> None:
        """Call `each` with every write and how far its body is."""
        if self._threads is None:
            return
        for number, write in list(self._writes.items()):
            position = self._threads.written(number)
            if position is not None:
                each(write, position)
