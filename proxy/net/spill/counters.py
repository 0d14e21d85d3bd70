"""Count the lists that went to disk, their bytes, and the lists that stayed in memory."""

from enum import StrEnum
from typing import Final

from proxy.core.counters import RoomCounters, SharedCounters


class Kept(StrEnum):
    """The reason why a slow reader's list stayed in memory."""

    NO_SPACE = "no_space"
    NO_FILES = "no_files"
    DISK_FULL = "disk_full"
    DISK_ERROR = "disk_error"


REASONS: Final = tuple(map(str, Kept))


class SpillCounters(RoomCounters):
    """The counters of lists on disk; change the attributes directly."""

    __slots__ = (
        "files",
        "held_bytes",
        "kept",
        "limit_bytes",
        "moved_lists",
        "moving",
        "read_back_bytes",
        "read_bytes",
        "read_errors",
        "written_bytes",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.moved_lists = 0
        self.written_bytes = 0
        self.read_bytes = 0
        self.read_errors = 0
        self.kept: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.moving = 0
        self.held_bytes = 0
        self.files = 0
        self.limit_bytes = 0
        self.read_back_bytes = 0

    def count_kept(self, reason: Kept) -> None:
        """Count a list that stayed in memory."""
        self.kept[reason] += 1
