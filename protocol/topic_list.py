"""Check a broker's topic list while its bytes arrive, and encode it again for any number of clients.

The proxy forwards names and never looks at a name. So a list is decoded slab by slab into a short-lived message that
proves the bytes well-formed, in which names are fields that the decoder does not know, and only the bytes themselves
stay in memory, once. The bytes are the heap cost before the encoding and the direct cost after it (ADR 1). Encoding
puts a new prefix with the client's request id in front of the same bytes. Names are counted where their number is
needed only (ADR 30). A scanner that is not written in Python may be given instead (ADR 38): it must find the same.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError

from protocol.errors import MalformedFrame
from protocol.frames import FrameHead, answer_prefix
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SLAB_BYTES, SlabBody, SlabPool

# Task, timer, decoded request, question and permits of an answer in flight: measured as the growth of RSS for each
# request that waits on a silent broker.
ANSWER_OVERHEAD_BYTES: Final = 6 * 1024

_TOPICS_TAG: Final = 0x12
_LARGEST_FIELD: Final = (1 << 29) - 1
# A list of topics is met at the second guess at the latest: the tag's byte may be the last of a length, too.
_GUESSES: Final = 2
# Limits of a walk in Python: a topic's name has at least 18 bytes ("persistent://t/n/x"), and names of 128 bytes and
# more are walked as slowly as fields that are no names. A walk to both limits takes 5 ms.
MOST_FIELDS: Final = SLAB_BYTES // 16
MOST_SLOW_FIELDS: Final = SLAB_BYTES // 128
# A field that crosses a slab's end is kept up to this size; a longer field is counted and skipped.
_STRADDLE_BYTES: Final = 4096


def heap_size(rest_bytes: int) -> int:
    """Return the heap permit, in bytes, of an answer with `rest_bytes` bytes after its request id.

    The permit is the peak that the process holds for the answer: the slabs and the objects around them. Decoding needs
    at most one slab's message at a time for the whole process, which no single answer is charged for (docs/memory.md).
    """
    return SlabBody.memory_bytes(rest_bytes) + ANSWER_OVERHEAD_BYTES


class OpaqueAnswer(SlabBody):
    """An answer that begins with its request id, ready to be sent under another request id."""

    __slots__ = ("_prefix", "command_type")

    def __init__(self, head: FrameHead, pool: SlabPool) -> None:
        assert head.command_type is not None
        super().__init__(head.rest_bytes, pool)
        self.command_type = head.command_type
        # The request id that was asked for last, and its prefix.
        self._prefix = -1, b""

    def prefix(self, request_id: int) -> bytes:
        """Return the frame's first bytes for one client; the slabs follow them on the wire."""
        # The size of an answer is asked for before its prefix.
        if self._prefix[0] != request_id:
            self._prefix = request_id, answer_prefix(self.command_type, request_id, self.size)
        return self._prefix[1]

    def encoded_size(self, request_id: int) -> int:
        """Return the size of the whole frame for one client."""
        return len(self.prefix(request_id)) + self.size


# A class of a compiled module, which this package must not import; what it does is in `DelegatingScanner`.
NativeScannerClass = Callable[[int], Any]


class TopicListAnswer(OpaqueAnswer):
    """A GET_TOPICS_OF_NAMESPACE_RESPONSE; its scanner has the flags once complete, and the counts if it is `counting`.

    `native`: scan with this class, which always counts. Bytes that are no such answer make `advance()` raise
    MalformedFrame.
    """

    __slots__ = ("scanner",)

    def __init__(
        self, head: FrameHead, pool: SlabPool, *, counting: bool = False, native: NativeScannerClass | None = None
    ) -> None:
        super().__init__(head, pool)
        self.scanner: TopicListScanner
        if native is not None:
            self.scanner = DelegatingScanner(self.size, native)
        else:
            self.scanner = CountingScanner(self.size) if counting else TopicListScanner(self.size)

    def slab_filled(self, slab: memoryview) -> None:
        """Decode the slab that is now full."""
        self.scanner.feed(self._slabs[-1])

    def count(self) -> Iterator["CountingScanner"]:
        """Yield the scanner of a complete list again and again; its counts are final when the iterator ends.

        Each step takes the time of one slab, so that the caller can let others run between two.
        """
        scanner = self.scanner
        if isinstance(scanner, CountingScanner):
            yield scanner
            return
        scanner = CountingScanner(self.size)
        yield scanner
        for slab in self._slabs:
            scanner.feed(slab)
            yield scanner


class TopicListScanner:
    """Decode a topic list's fields chunk by chunk, keeping flags only: nothing is made of a name.

    `filtered`, `changed` and `topics_hash` are final when `total` bytes were fed.
    """

    __slots__ = ("_carry", "_left", "_skip", "changed", "filtered", "topics_hash")

    def __init__(self, total: int) -> None:
        self.filtered = False
        self.changed = True
        self.topics_hash = ""
        self._left = total
        self._skip = 0
        self._carry = b""

    def feed(self, chunk: bytearray) -> None:
        """Decode the next bytes; raises MalformedFrame for bytes that are no topic list."""
        self._left -= len(chunk)
        position = self._finish_straddling_field(chunk)
        if position < len(chunk):
            end = self._decode_whole_fields(chunk, position)
            if end < len(chunk):
                self._begin_straddling_field(chunk, end)
        if self._left == 0 and (self._carry or self._skip):
            raise MalformedFrame("topic list ends inside a field")

    def _decode_whole_fields(self, chunk: bytearray, start: int) -> int:
        """Decode as many whole fields as the chunk holds and return where they end.

        Finding the exact end costs a pass over every field in Python; so the end is guessed from the last bytes that
        look like a topic's tag. Decoding proves a guess: from a known field start the wire format has one reading only.
        Where no guess is right, the pass is bounded: a broker can make it as long as it likes.
        """
        candidate = len(chunk)
        if self._left:
            candidate = chunk.rfind(_TOPICS_TAG, start, candidate)
        for _ in range(_GUESSES):
            if candidate <= start:
                break
            if self._decode(chunk, start, candidate):
                start = candidate
                break
            candidate = chunk.rfind(_TOPICS_TAG, start, candidate)
        # Whole fields may follow the guess, too: the tag found may belong to a name before the last.
        end = _end_of_whole_fields(chunk, start)
        if end > start and not self._decode(chunk, start, end):
            raise MalformedFrame("topic list cannot be decoded")
        return end

    def _decode(self, chunk: bytearray, start: int, end: int) -> bool:
        """Return whether the bytes from `start` to `end` are whole fields, and store what is in them."""
        return self._decode_as(pb.TopicListFlags(), chunk, start, end)

    def _decode_as(
        self, message: pb.TopicListFlags | pb.TopicListNames, chunk: bytearray, start: int, end: int
    ) -> bool:
        try:
            message.MergeFromString(memoryview(chunk)[start:end])  # type: ignore[arg-type]  # upb reads any buffer
        except DecodeError:
            return False
        if message.HasField("request_id"):
            # A decoder keeps the last value: the client would get the broker's id instead of its own.
            raise MalformedFrame("topic list has a second request id")
        if message.HasField("filtered"):
            self.filtered = message.filtered
        if message.HasField("changed"):
            self.changed = message.changed
        if message.HasField("topics_hash"):
            self.topics_hash = message.topics_hash
        return True

    def _begin_straddling_field(self, chunk: bytearray, start: int) -> None:
        self._carry = bytes(chunk[start:])
        if len(self._carry) > _STRADDLE_BYTES:
            self._pass_over_long_field(len(self._carry))

    def _finish_straddling_field(self, chunk: bytearray) -> int:
        """Complete the field that began in an earlier chunk and return where the next one starts."""
        position = min(self._skip, len(chunk))
        self._skip -= position
        if not self._carry:
            return position
        joined = self._carry + bytes(chunk[:_STRADDLE_BYTES])
        field = _field_end(joined, 0)
        if field is None:
            self._carry = joined
            return len(chunk)
        carried = len(self._carry)
        if field > _STRADDLE_BYTES:
            self._carry = joined
            self._pass_over_long_field(carried)
            position = min(self._skip, len(chunk))
            self._skip -= position
            return position
        if field > len(joined):
            self._carry = joined
            return len(chunk)
        self._carry = b""
        if not self._decode(bytearray(joined[:field]), 0, field):
            raise MalformedFrame("topic list cannot be decoded")
        return field - carried

    def _pass_over_long_field(self, seen: int) -> None:
        """Skip what follows the first `seen` bytes of the long field that `_carry` begins."""
        end = _field_end(self._carry, 0)
        assert end is not None
        self._passed_over(self._carry, end)
        self._carry = b""
        self._skip = end - seen

    def _passed_over(self, begin: bytes, size: int) -> None:
        """Called with the first bytes of a field of `size` bytes that is skipped."""


class CountingScanner(TopicListScanner):
    """Count the names of a topic list, too: for the event log, refusals and load generators.

    `topic_count` and `name_bytes` (UTF-8 bytes of all names, the size PIP-442 speaks of) are exact. Names of 128 bytes
    or more, names that are not ASCII and a slab with flags cost an object for each name of the slab, one at a time.
    """

    __slots__ = ("name_bytes", "topic_count")

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.topic_count = 0
        self.name_bytes = 0

    def _decode(self, chunk: bytearray, start: int, end: int) -> bool:
        message = pb.TopicListNames()
        if not self._decode_as(message, chunk, start, end):
            return False
        topics = len(message.topics)
        self.topic_count += topics
        if chunk.isascii() and _has_names_only(message, end - start):
            # Every length is below 128: a topic's tag and length are two bytes.
            self.name_bytes += end - start - 2 * topics
        else:
            self.name_bytes += sum(map(len, message.topics))
        return True

    def _passed_over(self, begin: bytes, size: int) -> None:
        tag, position = _read_varint(begin, 0)
        if tag == _TOPICS_TAG:
            _, position = _read_varint(begin, position)
            self.topic_count += 1
            self.name_bytes += size - position


class DelegatingScanner(CountingScanner):
    """Let a native scanner, equal to `CountingScanner`, read a list; what is found is here after each chunk."""

    __slots__ = ("_feed", "_found")

    def __init__(self, total: int, native: NativeScannerClass) -> None:
        super().__init__(total)
        scanner = native(total)
        # The first returns why the bytes are no topic list, or None; the other all that was found so far.
        self._feed: Callable[[bytearray], str | None] = scanner.feed
        self._found: Callable[[], tuple[bool, bool, str, int, int]] = scanner.found

    def feed(self, chunk: bytearray) -> None:
        """Read the next bytes; raises MalformedFrame for bytes that are no topic list."""
        fault = self._feed(chunk)
        if fault is not None:
            raise MalformedFrame(fault)
        self.filtered, self.changed, self.topics_hash, self.topic_count, self.name_bytes = self._found()


def _has_names_only(message: pb.TopicListNames, size: int) -> bool:
    """Return whether `message` was decoded from `size` bytes of names and nothing else; drops its unknown fields."""
    if message.HasField("filtered") or message.HasField("changed") or message.HasField("topics_hash"):
        return False
    # Asking for the unknown fields would make an object of each.
    message.DiscardUnknownFields()
    return message.ByteSize() == size


def _end_of_whole_fields(chunk: bytearray, position: int) -> int:
    """Return where the last whole field of the chunk ends; raises MalformedFrame for more fields than names can be."""
    last, size, slow = len(chunk) - 1, len(chunk), 0
    for _ in range(MOST_FIELDS + 1):
        end: int | None
        if position < last and chunk[position] == _TOPICS_TAG and chunk[position + 1] < 0x80:
            # Nearly every field of a list: this walk is short, unless names contain the tag's byte.
            end = position + 2 + chunk[position + 1]
        elif position < size:
            slow += 1
            if slow > MOST_SLOW_FIELDS:
                raise MalformedFrame(f"topic list has more than {MOST_SLOW_FIELDS} fields in a slab that are no names")
            end = _field_end(chunk, position)
        else:
            return position
        if end is None or end > size:
            return position
        position = end
    raise MalformedFrame(f"topic list has more than {MOST_FIELDS} fields in a slab, shorter than any topic's name")


def _field_end(data: bytes | bytearray, position: int) -> int | None:
    """Return where the field at `position` ends, or None if its head is incomplete."""
    tag, position = _read_varint(data, position)
    if tag is None:
        return None
    if not 0 < tag >> 3 <= _LARGEST_FIELD:
        raise MalformedFrame(f"topic list has field number {tag >> 3}, expected 1 to {_LARGEST_FIELD}")
    wire_type = tag & 7
    if wire_type == 0:
        value, position = _read_varint(data, position)
        return None if value is None else position
    if wire_type == 2:
        length, position = _read_varint(data, position)
        return None if length is None else position + length
    if wire_type in (1, 5):
        return position + (8 if wire_type == 1 else 4)
    raise MalformedFrame(f"topic list has wire type {wire_type}, expected 0, 1, 2 or 5")


def _read_varint(data: bytes | bytearray, position: int) -> tuple[int | None, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise MalformedFrame("topic list has a number of more than ten bytes")
    return None, position


assert _STRADDLE_BYTES < SLAB_BYTES
