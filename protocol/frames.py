"""The layout of a frame's first bytes, and the values that a frame decoder returns: a frame's head, a whole frame.

The layout is `[4 B total][4 B command size][BaseCommand]`, big-endian, the total not counting itself. A command's type
and request id are read from raw bytes; no command is decoded here.
"""

from typing import Final, NamedTuple

from protocol.errors import MalformedFrame

SIZE_BYTES: Final = 4
HEADER_BYTES: Final = 8
# Both sizes (8), type (1 + 2), sub-message tag and length (3 + 5) and a request id (1 + 10) fit with room to spare.
HEAD_BYTES: Final = 40
LARGEST_FRAME: Final = 0x7FFF_FFFF

_TYPE_TAG: Final = 0x08
_FIRST_VARINT_FIELD: Final = 0x08
_LENGTH_DELIMITED: Final = 2
_MAX_VARINT_BYTES: Final = 10
_UINT64: Final = 0xFFFF_FFFF_FFFF_FFFF


class FrameHead(NamedTuple):
    """A frame as known from its first bytes, before its body is there.

    `frame_bytes` counts everything on the wire, the four size bytes included. `request_id` is set where the command
    is laid out as every Pulsar encoder does (type first, then one sub-message that begins with its request id), and in
    a command that begins with another number it is that number; `rest_offset` is then the offset of the first byte
    after it, counted from the frame's first byte.
    """

    frame_bytes: int
    command_bytes: int
    command_type: int | None
    request_id: int | None
    rest_offset: int

    @property
    def rest_bytes(self) -> int:
        """Return the number of bytes after the request id."""
        return self.frame_bytes - self.rest_offset


class Frame(NamedTuple):
    """A whole frame: small, or stored at the reader's request."""

    head: FrameHead
    command: bytes
    payload: bytes


def read_sizes(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return frame size (all bytes on the wire) and command size at `position`.

    Raises MalformedFrame for sizes that contradict each other or exceed a signed 32-bit length.
    """
    total = int.from_bytes(buffer[position : position + 4], "big")
    command = int.from_bytes(buffer[position + 4 : position + 8], "big")
    if total > LARGEST_FRAME:
        raise MalformedFrame(f"frame length {total} exceeds {LARGEST_FRAME}: this is not the pulsar protocol")
    if command == 0 or command > total - SIZE_BYTES:
        raise MalformedFrame(f"command size {command} does not fit a frame of {total} bytes")
    return total + SIZE_BYTES, command


def read_head(first_bytes: bytes) -> FrameHead:
    """Return a frame's head from its first min(frame, HEAD_BYTES) bytes.

    Raises MalformedFrame where the sizes contradict each other, or a number has more than ten bytes. A command that is
    laid out in an unusual but legal order has `command_type` or `request_id` None: only decoding it can find them.
    """
    frame_bytes, command_bytes = read_sizes(first_bytes, 0)
    command_end = HEADER_BYTES + command_bytes
    first_bytes = first_bytes[:command_end]
    command_type, position = leading_type(first_bytes, HEADER_BYTES)
    if command_type is None:
        return FrameHead(frame_bytes, command_bytes, None, None, command_end)
    request_id, rest_offset = _leading_request_id(first_bytes, position, command_type, command_end)
    return FrameHead(frame_bytes, command_bytes, command_type, request_id, rest_offset)


def leading_type(data: bytes | bytearray | memoryview, position: int) -> tuple[int | None, int]:
    """Return the type of a command that begins with it, as every known encoder writes it, and where it ends."""
    if position >= len(data) or data[position] != _TYPE_TAG:
        return None, position
    return read_varint(data, position + 1)


def _leading_request_id(
    first_bytes: bytes, position: int, command_type: int, command_end: int
) -> tuple[int | None, int]:
    tag, position = read_varint(first_bytes, position)
    if tag is None or tag != (command_type << 3 | _LENGTH_DELIMITED):
        return None, command_end
    length, position = read_varint(first_bytes, position)
    if length is None or position + length != command_end:
        return None, command_end
    if position >= len(first_bytes) or first_bytes[position] != _FIRST_VARINT_FIELD:
        return None, command_end
    request_id, position = read_varint(first_bytes, position + 1)
    return (None, command_end) if request_id is None else (request_id, position)


def read_varint(data: bytes | bytearray | memoryview, position: int, end: int | None = None) -> tuple[int | None, int]:
    """Return a varint and where it ends; None if it is not complete before `end`.

    Raises MalformedFrame for one of more than ten bytes, which hold 70 bits: every decoder drops those above 64.
    """
    last = len(data) if end is None else end
    if position < last and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for index in range(position, min(last, position + _MAX_VARINT_BYTES)):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value & _UINT64, index + 1
        shift += 7
    if last - position >= _MAX_VARINT_BYTES:
        raise MalformedFrame("got a number of more than 10 bytes")
    return None, position


def varint(value: int) -> bytes:
    """Encode a non-negative integer as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bare_frame(command_type: int) -> bytes:
    """Encode the whole frame of a command without content, such as PING."""
    return answer_frame(command_type, b"")


def answer_frame(command_type: int, content: bytes) -> bytes:
    """Encode the whole frame of a command with the bytes of its sub-message."""
    return _frame_begin(command_type, len(content)) + content


def answer_prefix(command_type: int, request_id: int, rest_bytes: int) -> bytes:
    """Encode everything of an answer's frame up to and including its request id.

    `rest_bytes` raw bytes of the same sub-message must follow on the wire.
    """
    field = b"\x08" + varint(request_id)
    return _frame_begin(command_type, len(field) + rest_bytes) + field


def _frame_begin(command_type: int, content_bytes: int) -> bytes:
    """Encode a frame up to its sub-message of so many bytes."""
    field = varint(command_type << 3 | _LENGTH_DELIMITED)
    inner = b"\x08" + varint(command_type) + field + varint(content_bytes)
    return frame_sizes(len(inner) + content_bytes) + inner


def frame_sizes(command_bytes: int) -> bytes:
    """Encode both sizes of a frame that has a command and no payload."""
    return (command_bytes + SIZE_BYTES).to_bytes(4, "big") + command_bytes.to_bytes(4, "big")
