"""Share a sum of kernel memory among the buffers of connections: a book without sockets and without a clock.

Every connection has a small buffer, which is not booked. The bytes by which a buffer is larger are booked here, while
the sum has room. A connection keeps its large buffer as long as nobody else needs the memory, so a quick client asks
once in its life. Nothing is taken from a connection that uses its buffer: connections that rest give theirs back, the
connection that has rested longest first.
"""

from collections.abc import Hashable
from typing import Final, Protocol

# Resting connections that are looked at for one that needs memory: a system call each.
LOOKS: Final = 8


class BufferHolder(Hashable, Protocol):
    """A connection's buffer; `booked_bytes` belongs to the book."""

    booked_bytes: int

    def spare(self) -> bool:
        """Return whether the kernel holds no more than fits into the small buffer, and nothing is about to be sent."""

    def shrink(self) -> None:
        """Restore the small buffer: the memory is taken back."""


class KernelMemory:
    """The memory of all buffers beyond the small ones; `limit_bytes` may change at any time, None is no limit."""

    __slots__ = ("limit_bytes", "resting", "used_bytes")

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # Holders that have a large buffer and rest, the longest rest first. A holder enters by itself when
        # it has nothing to send any more, and leaves before it sends: that is for each answer, and must cost no call.
        self.resting: dict[BufferHolder, None] = {}

    @property
    def over(self) -> bool:
        """Return whether more is booked than the limit, which was lowered."""
        return self.limit_bytes is not None and self.used_bytes > self.limit_bytes

    def take(self, holder: BufferHolder, wanted_bytes: int, spared_bytes: int = 0) -> bool:
        """Take `wanted_bytes` for `holder` in place of what the holder has; return False if there is no room for that.

        `spared_bytes` of the limit are left to others.
        """
        growth = wanted_bytes - holder.booked_bytes
        needed = growth + spared_bytes
        if growth > 0 and not self._has_room(needed):
            self._take_back(holder, needed, LOOKS)
            if not self._has_room(needed):
                return False
        self.used_bytes += growth
        holder.booked_bytes = wanted_bytes
        return True

    def trim(self, looks: int) -> None:
        """Take memory back from those that rest while more is booked than the limit."""
        if self.over:
            self._take_back(None, 0, looks)

    def release(self, holder: BufferHolder) -> None:
        """End the booking of `holder`: its connection is gone."""
        self.resting.pop(holder, None)
        self.used_bytes -= holder.booked_bytes
        holder.booked_bytes = 0

    def _has_room(self, needed: int) -> bool:
        return self.limit_bytes is None or self.used_bytes + needed <= self.limit_bytes

    def _take_back(self, wanting: BufferHolder | None, needed: int, looks: int) -> None:
        for _ in range(min(looks, len(self.resting))):
            holder = next(iter(self.resting))
            del self.resting[holder]
            if holder is not wanting and holder.spare():
                self._shrink(holder)
                if self._has_room(needed):
                    return
            else:
                self.resting[holder] = None

    def _shrink(self, holder: BufferHolder) -> None:
        self.release(holder)
        holder.shrink()
