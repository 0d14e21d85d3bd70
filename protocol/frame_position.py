"""Tell whether a stream of frames stands inside a frame.

Sans-IO. Only the sizes at the beginning of frames are read, and nothing is judged: a size without sense puts the
position inside a frame for good.
"""

from struct import Struct
from typing import Final

_SIZE_BYTES: Final = 4
_read_size: Final = Struct(">I").unpack_from


class FramePosition:
    """The position of a stream that begins with a frame."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        # The bytes of the present frame that are still to come.
        self._left = 0
        # The beginning of a size that is split between two reads.
        self._head = b""

    @property
    def inside(self) -> bool:
        """Return whether the stream stands inside a frame."""
        return self._left > 0 or self._head != b""

    def feed(self, data: bytes | memoryview, count: int) -> None:
        """Move on by the first `count` bytes of `data`."""
        if count < self._left:
            self._left -= count
            return
        at = self._left
        if self._head:
            head = self._head + bytes(data[: min(count, _SIZE_BYTES - len(self._head))])
            if len(head) < _SIZE_BYTES:
                self._head = head
                return
            at = _SIZE_BYTES - len(self._head) + int.from_bytes(head, "big")
        while at + _SIZE_BYTES <= count:
            at += _SIZE_BYTES + _read_size(data, at)[0]
        # Fewer than four bytes are left of this read, or the frame goes on after it.
        self._left = max(0, at - count)
        self._head = bytes(data[at:count]) if at < count else b""
