"""Read the head of a relayed frame, for `proxyLogLevel`: the command, and the headers of a message without the payload.

Sans-IO. The threads of the native engine find the heads (`native/src/relay/tap.rs`), of at most 4 KiB, in frames whose
sizes make sense.
"""

from struct import Struct
from typing import Final

from protocol.pb import PulsarApi_pb2 as pb

_SIZES_BYTES: Final = 8
_TYPE_TAG: Final = 0x08
# The first byte of a number in several bytes; no command known here has such a number.
_MANY_BYTES: Final = 0x80
_read_sizes: Final = Struct(">ii").unpack_from
_read_size: Final = Struct(">I").unpack_from
_CHECKSUM_MAGIC: Final = b"\x0e\x01"
_BROKER_ENTRY_MAGIC: Final = b"\x0e\x02"
_CHECKSUM_BYTES: Final = 6


class CommandHead:
    """A frame: the number of its command, its size on the wire, and its first bytes."""

    __slots__ = ("_command_bytes", "_head", "frame_bytes", "kind")

    def __init__(self, head: bytes) -> None:
        total, command = _read_sizes(head)
        self._head = head
        self._command_bytes: int = command
        self.frame_bytes: int = total + 4
        self.kind = head[9] if head[8] == _TYPE_TAG and head[9] < _MANY_BYTES else 0

    @property
    def whole(self) -> bool:
        """Return whether the head holds the whole command."""
        return len(self._head) >= _SIZES_BYTES + self._command_bytes

    @property
    def command(self) -> bytes:
        """Return the command, as far as the head holds it."""
        return self._head[_SIZES_BYTES : _SIZES_BYTES + self._command_bytes]

    @property
    def payload_bytes(self) -> int:
        """Return the size of what follows the command: a message with its headers."""
        return self.frame_bytes - _SIZES_BYTES - self._command_bytes

    def messages(self) -> int:
        """Count the messages of a SEND or MESSAGE; 1 if its headers are longer than the head or make no sense."""
        rest = self._head[_SIZES_BYTES + self._command_bytes :]
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
