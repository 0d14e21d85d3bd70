"""Scan a stream of frames for topic lists sent to a watcher, of topics or of scalable topics (`_WATCH_FRAMES`).

Sans-IO. Only the first ten bytes of a frame are read. No byte is copied, except a frame's head that is split between
two reads (at most nine bytes); a payload costs one subtraction a read, whatever its size. Sizes that make no sense end
the scan for good; one match reports that.
"""

from struct import Struct
from typing import Final

from protocol.command_type import CommandType

# Both sizes, the tag of BaseCommand.type and its value: all known encoders put these first.
SCANNED_BYTES: Final = 10
_SIZES_BYTES: Final = 4
# Signed, as upstream reads them: a length above 2 GiB is negative and fits no command.
_read_head: Final = Struct(">iiH").unpack_from
_SUCCESS: Final = 0x0800 | CommandType.WATCH_TOPIC_LIST_SUCCESS
# A WATCH_SCALABLE_TOPICS_UPDATE says further behind whether it has all topics or a change: it counts as an update.
_WATCH_FRAMES: Final = frozenset(
    {_SUCCESS, 0x0800 | CommandType.WATCH_TOPIC_UPDATE, 0x0800 | CommandType.WATCH_SCALABLE_TOPICS_UPDATE}
)
_SMALLEST_COMMAND: Final = 2
_FOR_GOOD: Final = 1 << 80


class FrameMatch:
    """The watch frames that begin in one read, or the end of the scan.

    The first watch frame begins at `start`, or began with bytes already passed on (then 0); all bytes of a read that
    only ended the scan lie before `start`. `frame_bytes` is the size of all these frames on the wire, and `open_bytes`
    the rest of the last frame that is still to come after this read.
    """

    __slots__ = ("frame_bytes", "open_bytes", "start", "successes", "unwalkable", "updates")

    def __init__(self, start: int) -> None:
        self.start = start
        self.successes = 0
        self.updates = 0
        self.frame_bytes = 0
        self.open_bytes = 0
        self.unwalkable = False

    def add(self, kind: int, frame_bytes: int, open_bytes: int) -> None:
        """Count a frame of `kind`, and record the bytes that are still open."""
        if kind == _SUCCESS:
            self.successes += 1
        else:
            self.updates += 1
        self.frame_bytes += frame_bytes
        self.open_bytes = open_bytes

    def join(self, later: "FrameMatch | None", read_bytes: int) -> None:
        """Add the match of the next read."""
        if later is None:
            self.open_bytes = max(0, self.open_bytes - read_bytes)
            return
        self.successes += later.successes
        self.updates += later.updates
        self.frame_bytes += later.frame_bytes
        self.open_bytes = later.open_bytes
        self.unwalkable |= later.unwalkable


class FrameScanner:
    """Scan one direction of a connection from its first byte, in reads of any size."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._left = 0
        self._head = b""

    @property
    def ended(self) -> bool:
        """Return whether sizes that make no sense have ended the scan."""
        return self._left >= _FOR_GOOD >> 1

    def scan(self, data: memoryview, count: int) -> FrameMatch | None:
        """Scan the first `count` bytes of `data`; return None if no watch frame begins there."""
        left = self._left
        if count <= left:
            self._left = left - count
            return None
        if self._head:
            return self._scan_from_split_head(data, count)
        if not left and count >= SCANNED_BYTES:
            # Most reads of a busy connection are one whole message: this check is all that they cost.
            total, command, kind = _read_head(data)
            whole = total + _SIZES_BYTES == count and _SMALLEST_COMMAND <= command <= total - _SIZES_BYTES
            if whole and kind not in _WATCH_FRAMES:
                return None
        return self._scan_frames(data, left, count, None)

    def _scan_frames(self, data: memoryview, position: int, count: int, seen: FrameMatch | None) -> FrameMatch | None:
        last = count - SCANNED_BYTES
        while position <= last:
            total, command, kind = _read_head(data, position)
            if not _SMALLEST_COMMAND <= command <= total - _SIZES_BYTES:
                return self._end(seen, count)
            if kind in _WATCH_FRAMES:
                seen = FrameMatch(position) if seen is None else seen
                seen.add(kind, total + _SIZES_BYTES, max(0, position + total + _SIZES_BYTES - count))
            position += total + _SIZES_BYTES
        if position >= count:
            self._left = position - count
        else:
            self._left = 0
            self._head = bytes(data[position:count])
        return seen

    def _scan_from_split_head(self, data: memoryview, count: int) -> FrameMatch | None:
        before = len(self._head)
        head = self._head + data[: min(count, SCANNED_BYTES - before)]
        if len(head) < SCANNED_BYTES:
            self._head = head
            return None
        self._head = b""
        total, command, kind = _read_head(head, 0)
        if not _SMALLEST_COMMAND <= command <= total - _SIZES_BYTES:
            return self._end(None, count)
        seen, behind = None, total + _SIZES_BYTES - before
        if kind in _WATCH_FRAMES:
            seen = FrameMatch(0)
            seen.add(kind, total + _SIZES_BYTES, max(0, behind - count))
        return self._scan_frames(data, behind, count, seen)

    def _end(self, seen: FrameMatch | None, count: int) -> FrameMatch:
        """End the scan: later bytes are skipped as if one endless frame had begun."""
        self._left = _FOR_GOOD
        seen = FrameMatch(count) if seen is None else seen
        seen.unwalkable = True
        return seen
