"""Keep the books of the disk: who has reserved how much, how many files there are, and who may have more.

Rules:
- Space for a whole rest is reserved before anything is written, and is given back when its file has been closed.
- A tenth of the file system stays free for others (`leaves_enough`, which `moves.py` asks before each file).
- Files are bounded, because each takes a descriptor of the process and an inode of the kernel.
- A key has at most its share (`topicListMaxMemoryPercentPerKey`) if memory is shared by keys.
- A key has at most three times as many files as are left: so some are left whatever one key, or a few, may do.
- Space is short while a list that should move finds none: until then nobody is judged for holding space.
- Lists of readers that take nothing may fill the memory only while the disk has room for all that they may have in it
  (`has_room_for`).

No I/O and no clock. Sizes are whole blocks of the file system.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proxy.core.counters import Counters, gauge

BLOCK_BYTES: Final = 4096
# Each file costs an inode and its extents in the kernel: 2 KiB, a line of the budget.
MOST_FILES: Final = 4096
# A key may have so many times the files that are left: alone three quarters of all, and k such keys leave 1 / (1 + 3k).
FILES_FOR_ONE_LEFT: Final = 3
# The part of the file system that stays free for others: a tenth.
FREE_PART: Final = 10
HELD_BYTES: Final = gauge(
    "spill_held_bytes", "Disk space of slow readers' lists (topicListSpillDirectory), reserved or written.", "bytes"
)
LIMIT_BYTES: Final = gauge(
    "spill_limit_bytes", "Disk space that such lists may take (topicListSpillMaxMB); 0: no directory.", "bytes"
)
FILES: Final = gauge("spill_files", "Files of lists on disk; each takes a file descriptor.")


class Kept(StrEnum):
    """The reason why a slow reader's list stayed in memory."""

    NO_SPACE = "no_space"
    NO_FILES = "no_files"
    DISK_FULL = "disk_full"
    DISK_ERROR = "disk_error"


@dataclass(slots=True, eq=False)
class SpaceReservation:
    """The space of one file; `unwritten` is what is still to be written of `size`."""

    key: Hashable
    size: int
    unwritten: int
    released: bool = False


class SpillSpace:
    """The space on the disk. `limit` and `key_cap_percent` may be changed at any time; nobody loses space by that."""

    def __init__(self, limit: int, most_files: int, counters: Counters, key_cap_percent: int = 100) -> None:
        self.most_files = most_files
        self.key_cap_percent = key_cap_percent
        # The disk was tried last in vain, or does not answer.
        self.failing = False
        # Lists move to the disk now, if they are slow.
        self.moves = True
        self._by_key: dict[Hashable, int] = {}
        self._files_by_key: dict[Hashable, int] = {}
        self._unwritten = 0
        self._wanted = 0
        self._disk_full = False
        # The most space of all files, what is reserved or written of it, and the files, also those about to be made.
        self.limit = limit
        self.held = self.files = 0
        counters.show(LIMIT_BYTES, lambda: self.limit)
        counters.show(HELD_BYTES, lambda: self.held)
        counters.show(FILES, lambda: self.files)

    @property
    def unwritten(self) -> int:
        """Return the reserved space that the file system does not know of yet."""
        return self._unwritten

    @property
    def lacking(self) -> int:
        """Return the bytes that lists on disk would have to give back for the list that found no space; 0: none."""
        if self._disk_full or (self._wanted and self.files >= self.most_files):
            return max(1, self._wanted)
        return max(0, self._wanted - max(0, self.limit - self.held))

    def held_by(self, key: Hashable) -> int:
        """Return the space that `key` holds."""
        return self._by_key.get(key, 0)

    def files_of(self, key: Hashable) -> int:
        """Return the number of files that `key` has."""
        return self._files_by_key.get(key, 0)

    def has_room_for(self, memory_bytes: int, key: Hashable) -> bool:
        """Return whether the disk takes all that `key` may have in a memory of that size; False if that is doubtful.

        False also while nothing moves to the disk.
        """
        if not self.moves or self.failing or self.lacking or self.files_of(key) >= self.most_files - self.files:
            return False
        room, part = self.limit - self.held, self.key_cap_percent
        if part < 100:
            room = min(room, self.limit * part // 100 - self.held_by(key))
        return room >= memory_bytes * part // 100

    def reserve(self, size: int, key: Hashable) -> SpaceReservation | Kept:
        """Reserve space for a file of `size` bytes, or return the reason why there is none."""
        size = -(-size // BLOCK_BYTES) * BLOCK_BYTES
        if self.files >= self.most_files:
            self._wanted = self._wanted or size
            return Kept.NO_FILES
        if self.files_of(key) >= FILES_FOR_ONE_LEFT * (self.most_files - self.files):
            # Files are not short for others, so nobody has to leave for this list.
            return Kept.NO_FILES
        cap = self.limit * self.key_cap_percent // 100
        if self.held + size > self.limit:
            # A list larger than the whole space waits for nobody.
            self._wanted = self._wanted or (size if size <= self.limit else 0)
            return Kept.NO_SPACE
        if self.key_cap_percent < 100 and self.held_by(key) + size > cap:
            return Kept.NO_SPACE
        self.held += size
        self.files += 1
        self._by_key[key] = self.held_by(key) + size
        self._files_by_key[key] = self.files_of(key) + 1
        self._unwritten += size
        return SpaceReservation(key, size, size)

    def written(self, reservation: SpaceReservation, count: int) -> None:
        """Record that `count` more bytes are on the disk: the file system counts them from now on."""
        count = min(count, reservation.unwritten)
        reservation.unwritten -= count
        self._unwritten -= count

    def release(self, reservation: SpaceReservation) -> None:
        """Release the space: the file is closed. A second call does nothing."""
        if reservation.released:
            return
        reservation.released = True
        self.written(reservation, reservation.unwritten)
        self.held -= reservation.size
        self.files -= 1
        for books, size in ((self._by_key, reservation.size), (self._files_by_key, 1)):
            books[reservation.key] -= size
            if not books[reservation.key]:
                del books[reservation.key]

    def ask_again(self) -> None:
        """Forget the list that found no space: all lists are about to be looked at again."""
        self._wanted = 0

    def disk_full(self, full: bool) -> None:
        """Record whether the file system has no room although the books have."""
        self._disk_full = full


def leaves_enough(free: int, total: int, unwritten: int) -> bool:
    """Return whether a tenth of a file system stays free when all that is reserved has been written."""
    return free - unwritten >= total // FREE_PART
