"""The right to write a list to a client: whose turn it is, and whether the next list may take memory."""

import asyncio
from collections.abc import Callable


class WriteLock(asyncio.Lock):
    """The right to write a list to one client; it can be reserved for a list that has no memory yet.

    A list on disk holds the lock, and no memory. A reservation keeps other lists of this client from asking for memory,
    not from writing: a list that waits for memory with a reservation must not hold up a list that has its memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reserved = 0
        self._on_disk = False
        self._listeners: dict[Callable[[], None], None] = {}

    @property
    def free(self) -> bool:
        """Return whether no list in memory is being written, and no write is reserved."""
        return not self._reserved and (self._on_disk or not self.locked())

    @property
    def awaited(self) -> bool:
        """Return whether anybody listens for the lock to become free."""
        return bool(self._listeners)

    def reserve(self) -> None:
        """Count one list that is about to have its memory."""
        self._reserved += 1

    def unreserve(self) -> None:
        """End a reservation: the list was written, or never will be."""
        self._reserved -= 1
        self._notify()

    def moved_to_disk(self) -> None:
        """Record that the list being written holds no memory any more: the next list may take memory."""
        self._on_disk = True
        self._notify()

    def release(self) -> None:
        """Release the lock and notify the listeners."""
        self._on_disk = False
        super().release()
        self._notify()

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the lock may have become free, until `forget`."""
        self._listeners[on_change] = None

    def forget(self, on_change: Callable[[], None]) -> None:
        """Stop calling `on_change`."""
        self._listeners.pop(on_change, None)

    def _notify(self) -> None:
        for on_change in list(self._listeners):
            on_change()
