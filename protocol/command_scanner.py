"""Scan a stream of frames for the beginning of each frame: its command, and as much of a message's headers as fits.

Sans-IO, for `proxyLogLevel`: the stream is not changed, at most `HEAD_BYTES` are kept, and payloads are skipped unread.
Sizes that make no sense end the scan for good.
"""

import sys
from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol.pb import PulsarApi_pb2 as pb

# A longer command is returned cut: the type comes first, and topics are shorter.
HEAD_BYTES: Final = 4096
_SIZES_BYTES: Final = 8
_TYPE_TAG: Final = 0x08
# The first byte of a number in several bytes; no command known here has such a number.
_MANY_BYTES: Final = 0x80
_read_sizes: Final = Struct(">ii").unpack_from
_read_size: Final = Struct(">I").unpack_from
_CHECKSUM_MAGIC: Final = b"\x0e\x01"
_BROKER_ENTRY_MAGIC: Final = b"\x0e\x02"
_CHECKSUM_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class ScannedFrame:
    """A frame: the number of its command, its size on the wire, and its first bytes."""

    kind: int
    frame_bytes: int
    command_bytes: int
    head: bytes

    @property
    def whole(self) -> bool:
        """Return whether the head holds the whole command."""
        return len(self.head) >= _SIZES_BYTES + self.command_bytes

    @property
    def command(self) -> bytes:
        """Return the command, as far as the head holds it."""
        return self.head[_SIZES_BYTES : _SIZES_BYTES + self.command_bytes]

    @property
    def payload_bytes(self) -> int:
        """Return the size of what follows the command: a message with its headers."""
        return self.frame_bytes - _SIZES_BYTES - self.command_bytes

    def messages(self) -> int:
        """Count the messages of a SEND or MESSAGE; 1 if its headers are longer than the head or make no sense."""
        rest = self.head[_SIZES_BYTES + self.command_bytes :]
        if rest.startswith(_BROKER_ENTRY_MAGIC) and len(rest) >= _CHECKSUM_BYTES:
            rest = rest[_CHECKSUM_BYTES + _read_size(rest, 2)[0] :]
        if rest.startswith(_CHECKSUM_MAGIC):
            rest = rest[_CHECKSUM_BYTES:]
        if len(rest) < 4 or len(rest) - 4 < (size := _read_size(rest)[0]):
            return 1
        try:
            return max(1, int(pb.MessageMetadata.FromString(rest[4 : 4 + size]).num_messages_in_batch))
        except Exception:  # protobuf's errors have no base of their own
            return 1


class CommandScanner:
    """Scan one direction of a connection from its first byte, in reads of any size."""

    __slots__ = ("_head", "_skip", "_wanted", "ended")

    def __init__(self) -> None:
        self._head = bytearray()
        self._wanted = _SIZES_BYTES
        self._skip = 0
        self.ended = False

    @property
    def passed_over(self) -> int:
        """Return how many of the bytes to come are passed over: the rest of a frame, or all if the scan has ended."""
        return sys.maxsize if self.ended else self._skip

    def scan(self, data: memoryview | bytes, count: int) -> list[ScannedFrame]:
        """Scan the first `count` bytes of `data`; return the frames whose head these bytes complete."""
        found: list[ScannedFrame] = []
        position = 0
        while position < count and not self.ended:
            if self._skip:
                passed = min(self._skip, count - position)
                self._skip -= passed
                position += passed
                continue
            taken = min(self._wanted - len(self._head), count - position)
            self._head += data[position : position + taken]
            position += taken
            if len(self._head) == self._wanted:
                self._head_grown(found)
        return found

    def _head_grown(self, found: list[ScannedFrame]) -> None:
        total, command = _read_sizes(self._head)
        if self._wanted == _SIZES_BYTES:
            if not 2 <= command <= total - 4:
                self.ended = True
                self._head.clear()
                return
            self._wanted = min(total + 4, HEAD_BYTES)
            if len(self._head) < self._wanted:
                return
        head = bytes(self._head)
        kind = head[9] if head[8] == _TYPE_TAG and head[9] < _MANY_BYTES else 0
        found.append(ScannedFrame(kind, total + 4, command, head))
        self._skip = total + 4 - len(head)
        self._head.clear()
        self._wanted = _SIZES_BYTES
