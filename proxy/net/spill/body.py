"""The body of a list that may move to disk while it is being written to its readers."""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Protocol

from limiter.permit import Permit
from proxy.net.spill.read_back import Arrived, DiskRead, ReadBack

if TYPE_CHECKING:
    from proxy.net.spill.file import SpillFile


class Body(Protocol):
    """The bytes of an answer that follow its prefix (`proxy.requests.topic_lists.bodies`)."""

    size: int

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        """Write once, the rest of the prefix first; returns how many bytes the socket took, never 0.

        `position` is that of the next byte of the body, below 0 as long as there is a prefix. Raises OSError.
        """

    def read(self, position: int, count: int) -> memoryview:
        """Return up to `count` bytes from `position`, at least one, for a transport that copies them at once.

        The caller has copied all bytes before `position`. Raises OSError.
        """


class ListInMemory(Body, Protocol):
    """A list's bytes in memory, which may be copied to disk."""

    def copy(self, position: int, buffer: memoryview) -> int:
        """Copy bytes from `position` into `buffer`, without an effect on readers; return how many. Raises OSError."""

    def close(self) -> None:
        """Release the memory; nothing is read any more."""


class ListReader:
    """A list on its way to one socket."""

    __slots__ = ("position", "queued")

    def __init__(self, position: int = 0) -> None:
        self.position = position
        # The socket may have room, and the proxy has not come to it yet.
        self.queued = False


class ReaderWindow:
    """The positions of a list's readers when a window began, and whether all were slow in the window before."""

    __slots__ = ("began", "positions", "slow")

    def __init__(self, began: float, readers: Iterable[ListReader], *, slow: bool = False) -> None:
        self.began = began
        self.slow = slow
        self.positions = {reader: reader.position for reader in readers}


class SpillableBody:
    """A list in memory, under a direct permit, or on disk: `file` is None until the list has moved.

    `shared`: there may be readers that have not begun, so all of the list is still needed. `since`: the loop's time
    when the list was encoded. `kept`: the list should have moved, and there was no place for it when that was tried.
    """

    __slots__ = (
        "_begun",
        "_memory",
        "_on_left_memory",
        "_on_moved",
        "_permit",
        "_read_back",
        "_readers",
        "_shared",
        "closed",
        "file",
        "kept",
        "moving",
        "since",
        "size",
        "window",
    )

    def __init__(
        self,
        memory: ListInMemory,
        permit: Permit,
        read_back: ReadBack,
        on_left_memory: Callable[["SpillableBody"], None],
        *,
        shared: bool,
        since: float,
    ) -> None:
        self.size = memory.size
        self.since = since
        self.file: SpillFile | None = None
        self.moving = False
        self.kept = False
        self.closed = False
        self.window: ReaderWindow | None = None
        self._memory: ListInMemory | None = memory
        self._permit = permit
        self._read_back = read_back
        self._shared = shared
        self._readers: dict[ListReader, None] = {}
        self._on_moved: dict[Callable[[], None], None] = {}
        self._on_left_memory = on_left_memory
        self._begun = False

    # --- as a body of the pump --------------------------------------------------------------------

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        """Write once from memory."""
        assert self._memory is not None, "a list on disk is read before it is written"
        return self._memory.write(fd, prefix, position)

    def read(self, position: int, count: int) -> memoryview:
        """Return bytes from memory."""
        assert self._memory is not None, "a list on disk is read before it is written"
        return self._memory.read(position, count)

    def read_from_disk(self, position: int, count: int, on_arrived: Arrived) -> DiskRead:
        """Read up to `count` bytes of a list that has moved; see `ReadBack.read`."""
        assert self.file is not None, "a list in memory is not read back"
        return self._read_back.read(self.file, position, min(count, self.size - position), on_arrived)

    def begin(self, reader: ListReader) -> None:
        """Count a reader whose write begins."""
        self._begun = True
        self._readers[reader] = None

    def end(self, reader: ListReader) -> None:
        """Forget a reader whose write is over."""
        self._readers.pop(reader, None)

    # --- for the move -----------------------------------------------------------------------------

    @property
    def readers(self) -> Collection[ListReader]:
        """Return the readers that have begun."""
        return self._readers.keys()

    @property
    def key(self) -> Hashable:
        """Return the key that is charged for the list's memory."""
        return self._permit.key

    @property
    def leaves(self) -> bool:
        """Return whether the list is on disk, or will be soon if its memory is needed: the disk has not refused it."""
        return self.file is not None or (self.rest_bytes > 0 and not self.kept)

    @property
    def first_needed(self) -> int:
        """Return the position of the first byte that a reader still needs."""
        if self._shared or not self._begun:
            return 0
        if not self._readers:
            return self.size
        return max(0, min(reader.position for reader in self._readers))

    @property
    def rest_bytes(self) -> int:
        """Return the bytes that a move would write."""
        return self.size - self.first_needed

    @property
    def memory_bytes(self) -> int:
        """Return the memory that a move would free."""
        return self._permit.size

    def copy(self, position: int, buffer: memoryview) -> int:
        """Copy bytes from memory into `buffer`; return how many. Raises OSError."""
        assert self._memory is not None, "a list moves once"
        return self._memory.copy(position, buffer)

    def listen(self, on_moved: Callable[[], None]) -> None:
        """Call `on_moved` when the list is on disk, at once if it is there already."""
        if self.file is not None:
            on_moved()
        else:
            self._on_moved[on_moved] = None

    def forget(self, on_moved: Callable[[], None]) -> None:
        """Stop calling `on_moved`."""
        self._on_moved.pop(on_moved, None)

    def moved(self, file: "SpillFile") -> None:
        """Read from `file` from now on; the memory and its permit end."""
        memory, self._memory = self._memory, None
        assert memory is not None, "a list moves once"
        self.file = file
        memory.close()
        self._permit.release()
        self._on_left_memory(self)
        listeners, self._on_moved = self._on_moved, {}
        for on_moved in listeners:
            on_moved()

    def close(self) -> None:
        """Release memory or file: the last reader has gone. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
        if self.file is not None:
            self.file.close()
        self._on_moved.clear()
        self._on_left_memory(self)
