"""Scan what a client sends to its broker for producers and their messages (PRODUCER, SEND, CLOSE_PRODUCER, SUBSCRIBE).

Sans-IO. Only the first bytes of a frame are read: 20 of most, 64 of a SEND, 640 of a PRODUCER. The usual order is the
type, then one field that fills the command: no second type can be there. Any other order is decoded as protobuf does,
the last value counts, if it has 4 KiB at most and few fields, and else counts as messages of an unknown producer. A
head that is split between two reads is kept until it is whole. Sizes that make no sense end the scan for good.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, Protocol

from protocol.command_type import CommandType

# Both sizes, the tag of BaseCommand.type and its value: all known encoders put these first.
SCANNED_BYTES: Final = 10
_SIZES_BYTES: Final = 8
# Enough for the tag and the size of the field behind the type, each of five bytes.
SOLE_BYTES: Final = 20
# Enough for the producer, the sequence and the number of messages of a SEND, each of ten bytes.
_SHORT_BYTES: Final = 64
# Enough for the longest topic that is told, and for its producer.
_PRODUCER_BYTES: Final = 640
# A longer command in an unusual order is not decoded.
MOST_DECODED: Final = 4096
# A field takes a microsecond, and 64 KiB hold 32,768 of them: unusual orders may bring one for so many bytes of
# their frames, and so many at once. Beyond that a command is not decoded.
BYTES_A_FIELD: Final = 16
MOST_FIELDS: Final = 256
# So many fields may stand behind those that are told in the usual order; PRODUCER has eleven.
MOST_BEHIND: Final = 16
# A longer topic is not told.
MOST_TOPIC_BYTES: Final = 512
_ENDLESS: Final = 1 << 80

_SUBSCRIBE: Final = 0x0800 | CommandType.SUBSCRIBE
_PRODUCER: Final = 0x0800 | CommandType.PRODUCER
_SEND: Final = 0x0800 | CommandType.SEND
_CLOSE: Final = 0x0800 | CommandType.CLOSE_PRODUCER
_WANTED: Final = {_SEND: _SHORT_BYTES, _CLOSE: _SHORT_BYTES, _PRODUCER: _PRODUCER_BYTES}
_NOT_PASSED: Final = frozenset({_SUBSCRIBE, *_WANTED})
_FIRST_UNUSUAL: Final = 0x0880
# Signed, as upstream reads them: a length above 2 GiB is negative and fits no command.
_read_head: Final = Struct(">iiH").unpack_from
# The bytes of a SEND after the type: tag and size of the part, tag and number of the producer, tag of the sequence.
_read_send: Final = Struct(">BBBBB").unpack_from
# The bytes of any command after the type: tag and size of the field there, if both are small.
_read_sole: Final = Struct(">BBB").unpack_from
_SMALL_SOLE_BYTES: Final = 13
_Bytes = bytes | memoryview


class Unreadable(Exception):
    """Bytes are not what the usual order, or protobuf, has there."""


class ProducerSink(Protocol):
    """The listener of a scanner: is told of a stream, in its order."""

    def send(self, producer: int | None, messages: int, frame_bytes: int) -> None:
        """Called when a SEND begins, of `frame_bytes` on the wire; None is a producer that cannot be read."""

    def producer(self, producer: int | None, topic: bytes | None) -> None:
        """Called when a PRODUCER begins; None stands for a part that cannot be read, or a topic that is too long."""

    def closed(self, producer: int) -> None:
        """Called when a producer is closed."""

    def subscribed(self) -> None:
        """Called when a consumer subscribes."""

    def ended(self) -> None:
        """Called when sizes that make no sense have ended the scan."""


def _varint(data: _Bytes, at: int) -> tuple[int, int]:
    """Return the varint at `at` and the place behind it. Bits above 64 are dropped, as protobuf does."""
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise Unreadable


def _tagged(data: _Bytes, at: int, tag: int) -> tuple[int, int]:
    if at >= len(data) or data[at] != tag:
        raise Unreadable
    return _varint(data, at + 1)


def _messages(value: int, frame_bytes: int) -> int:
    """Return the number of messages; a batch has a byte for each at least, so no client makes up more."""
    value &= 0xFFFF_FFFF
    return 1 if value == 0 or value >= 0x8000_0000 else min(value, frame_bytes)


def _part(head: _Bytes, end: int, tag: int) -> int:
    """Return the place of the first field of a part that fills its command."""
    size, at = _tagged(head, SCANNED_BYTES, tag)
    if size != end - at:
        raise Unreadable
    return at


def _is_sole(head: _Bytes, end: int) -> bool:
    """Return whether one field fills the command behind its type, or nothing is there: no second type can be."""
    if end == SCANNED_BYTES:
        return True
    try:
        tag, at = _varint(head, SCANNED_BYTES)
        size, at = _varint(head, at)
    except Unreadable:
        return False
    return tag & 7 == 2 and 8 <= tag < 1 << 32 and size == end - at


def _behind(head: _Bytes, at: int, end: int, told: int) -> None:
    """Read the fields up to the end of a part: all of higher numbers than `told`, so that none of those comes again."""
    have = len(head)
    for _ in range(MOST_BEHIND):
        if at >= end:
            break
        tag, at = (head[at], at + 1) if at < have and head[at] < 0x80 else _varint(head, at)
        kind = tag & 7
        if tag >> 3 <= told or tag >= 1 << 32:
            raise Unreadable
        if kind == 0:
            at = at + 1 if at < have and head[at] < 0x80 else _varint(head, at)[1]
        elif kind == 2:
            # The last may end behind the head.
            size, at = _varint(head, at)
            at += size
        elif kind == 1 or kind == 5:
            at += 8 if kind == 1 else 4
        else:
            raise Unreadable
    if at != end:
        raise Unreadable


def _usual_send(head: _Bytes, end: int) -> tuple[int, int]:
    """Return the producer and the number of messages of a SEND in the usual order."""
    producer, at = _tagged(head, _part(head, end, 0x32), 0x08)
    _, at = _tagged(head, at, 0x10)
    count = 1
    if at < len(head) and head[at] == 0x18:
        count, at = _tagged(head, at, 0x18)
    _behind(head, at, end, 3)
    return producer, count


def _usual_close(head: _Bytes, end: int) -> int:
    producer, at = _tagged(head, _part(head, end, 0x7A), 0x08)
    _behind(head, at, end, 1)
    return producer


def _usual_producer(head: _Bytes, end: int) -> tuple[int, bytes]:
    length, at = _tagged(head, _part(head, end, 0x2A), 0x0A)
    if length > MOST_TOPIC_BYTES or at + length > len(head):
        raise Unreadable
    topic = bytes(head[at : at + length])
    producer, at = _tagged(head, at + length, 0x10)
    # A longer one is not waited for to its end: a client that repeats the topic there could have named any topic.
    if end <= _SIZES_BYTES + MOST_DECODED:
        _behind(head, at, end, 2)
    return producer, topic


class _Decoded:
    """The fields of a command that matter here: the last value of each, as protobuf has it."""

    __slots__ = ("close", "count", "kind", "left", "producer", "send", "topic", "two_kinds")

    def __init__(self, left: int) -> None:
        # How many more fields may be read.
        self.left = left
        self.kind: int | None = None
        # Whether there are two types that differ.
        self.two_kinds = False
        self.count = 1
        self.producer: int | None = None
        self.send: int | None = None
        self.close: int | None = None
        self.topic: bytes | None = None

    def read(self, command: _Bytes) -> None:
        """Take a command; raises Unreadable."""
        for number, value in self._fields(command):
            if number == 1 and isinstance(value, int):
                # 32 bits of it count, as protobuf does.
                kind = value & 0xFFFF_FFFF
                self.two_kinds |= self.kind is not None and self.kind != kind
                self.kind = kind
            elif value is None or isinstance(value, int):
                continue
            elif number == 5:
                self._take_producer(value)
            elif number == 6:
                self._take_send(value)
            elif number == 15:
                self._take_close(value)

    def _fields(self, data: _Bytes) -> Iterator[tuple[int, int | _Bytes | None]]:
        """Yield the fields of a command or of a part; raises Unreadable, for a group, too: no command has one."""
        at, end = 0, len(data)
        while at < end:
            tag, at = _varint(data, at)
            if not self.left or not 8 <= tag < 1 << 32:
                raise Unreadable
            kind, size = tag & 7, 0
            if kind == 0:
                number, at = _varint(data, at)
                self.left -= 1
                yield tag >> 3, number
                continue
            if kind == 2:
                size, at = _varint(data, at)
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
            else:
                raise Unreadable
            if at + size > end:
                raise Unreadable
            self.left -= 1
            yield tag >> 3, data[at : at + size] if kind == 2 else None
            at += size

    def _take_producer(self, part: _Bytes) -> None:
        for number, value in self._fields(part):
            if number == 2 and isinstance(value, int):
                self.producer = value
            elif number == 1 and value is not None and not isinstance(value, int):
                self.topic = bytes(value) if len(value) <= MOST_TOPIC_BYTES else None

    def _take_send(self, part: _Bytes) -> None:
        for number, value in self._fields(part):
            if number == 1 and isinstance(value, int):
                self.send = value
            elif number == 3 and isinstance(value, int):
                self.count = value

    def _take_close(self, part: _Bytes) -> None:
        for number, value in self._fields(part):
            if number == 1 and isinstance(value, int):
                self.close = value


class ProducerScanner:
    """Scan a client's stream from its first byte, in reads of any size; tells `sink` what is found."""

    __slots__ = ("_fields_read", "_head", "_left", "_sink", "_wanted")

    def __init__(self, sink: ProducerSink) -> None:
        self._sink = sink
        self._left = 0
        self._head = b""
        # Fields of unusual orders that their frames' bytes have not paid for yet.
        self._fields_read = 0
        self._wanted = 0

    @property
    def has_ended(self) -> bool:
        """Return whether sizes that make no sense have ended the scan."""
        return self._left >= _ENDLESS >> 1

    @property
    def between_frames(self) -> bool:
        """Return whether the last byte was the last of its frame."""
        return not self._left and not self._head

    @property
    def room(self) -> int:
        """Return how many bytes may be read that are surely of the frame under way, or of the next; at least one."""
        if self._left:
            return self._left
        have = len(self._head)
        if have < 4:
            return 4 - have
        return max(1, max(SCANNED_BYTES, int.from_bytes(self._head[:4], "big", signed=True) + 4) - have)

    def scan(self, data: memoryview, count: int) -> None:
        """Scan the first `count` bytes of `data`."""
        position = self._left
        if count <= position:
            self._left = position - count
            return
        self._left = 0
        if self._head:
            position = self._scan_split_head(data, count)
            if not position:
                return
        sink = self._sink
        while position + SCANNED_BYTES <= count:
            total, command, kind = _read_head(data, position)
            if not 2 <= command <= total - 4:
                self._end()
                return
            if kind == _SEND and position + _SHORT_BYTES <= count:
                messages = self._quick_send(data, position + SCANNED_BYTES, command, total + 4)
                if messages:
                    sink.send(data[position + SCANNED_BYTES + 3], messages, total + 4)
                    position += total + 4
                    continue
            elif 0x0800 <= kind < _FIRST_UNUSUAL and kind not in _NOT_PASSED and position + _SMALL_SOLE_BYTES <= count:
                # The rule of _is_sole, for tags of one or two bytes and sizes of one.
                tag, second, third = _read_sole(data, position + SCANNED_BYTES)
                if (
                    (tag & 7 == 2 and tag > 2 and second == command - 4 and second < 0x80)
                    if tag < 0x80
                    else (tag & 7 == 2 and 0 < second < 0x80 and third == command - 5 and third < 0x80)
                ):
                    position += total + 4
                    continue
            wanted = self._inspect(data[position:count], total + 4, command, kind)
            if wanted:
                self._wanted = wanted
                break
            position += total + 4
        else:
            self._wanted = SCANNED_BYTES
        if position >= count:
            self._left = position - count
        else:
            self._head = bytes(data[position:count])

    def _scan_split_head(self, data: memoryview, count: int) -> int:
        """Complete a head that is split; return where the next frame begins, maybe behind the read, 0 if incomplete."""
        at = 0
        while True:
            more = min(count - at, self._wanted - len(self._head))
            self._head += data[at : at + more]
            at += more
            if len(self._head) < self._wanted:
                return 0
            total, command, kind = _read_head(self._head)
            if not 2 <= command <= total - 4:
                self._end()
                return _ENDLESS
            wanted = self._inspect(self._head, total + 4, command, kind)
            if not wanted:
                # A frame is at least as long as what is wanted of it.
                left: int = total + 4 - len(self._head)
                self._head = b""
                return at + left
            self._wanted = wanted

    @staticmethod
    def _quick_send(data: memoryview, at: int, command: int, frame_bytes: int) -> int:
        """Return the number of messages of a SEND in the usual order with small numbers; 0 for any other."""
        tag, size, first, producer, second = _read_send(data, at)
        if tag != 0x32 or size != command - 4 or size > 0x7F or first != 0x08 or producer > 0x7F or second != 0x10:
            return 0
        end = at + 2 + size
        place = at + 5
        while data[place] > 0x7F and place < at + 15:
            place += 1
        place += 1
        if place > at + 15 or place > end:
            return 0
        if place == end:
            return 1
        messages = 1
        if data[place] == 0x18:
            messages = data[place + 1]
            place += 2
        if place < end and data[place] == 0x30:
            # The highest sequence of a batch.
            last = place + 10
            place += 1
            while data[place] > 0x7F and place < last:
                place += 1
            if data[place] > 0x7F:
                return 0
            place += 1
        return _messages(messages, frame_bytes) if messages < 0x80 and place == end else 0

    def _inspect(self, head: _Bytes, frame_bytes: int, command: int, kind: int) -> int:
        """Return how many bytes of a frame are wanted, 0 once the sink is told of the frame."""
        end, sink = _SIZES_BYTES + command, self._sink
        usual = 0x0800 <= kind < _FIRST_UNUSUAL
        wanted = min(end, _WANTED.get(kind, SOLE_BYTES)) if usual else 0
        if len(head) < wanted:
            return wanted
        is_sole = usual and _is_sole(head[:wanted], end)
        if is_sole and kind not in _WANTED:
            if kind == _SUBSCRIBE:
                sink.subscribed()
            return 0
        try:
            if kind == _SEND:
                producer, messages = _usual_send(head[:wanted], end)
                sink.send(producer, _messages(messages, frame_bytes), frame_bytes)
                return 0
            if kind == _CLOSE:
                sink.closed(_usual_close(head[:wanted], end))
                return 0
            if kind == _PRODUCER:
                sink.producer(*_usual_producer(head[:wanted], end))
                return 0
        except Unreadable:
            pass
        if command <= MOST_DECODED:
            if len(head) < end:
                return end
            self._decode(head[_SIZES_BYTES:end], frame_bytes)
        elif is_sole and kind == _PRODUCER:
            sink.producer(None, None)
        elif not is_sole or kind != _CLOSE:
            sink.send(None, 1, frame_bytes)
        return 0

    def _decode(self, command: _Bytes, frame_bytes: int) -> None:
        """Decode a command in an unusual order for the sink."""
        sink = self._sink
        before = max(0, self._fields_read - frame_bytes // BYTES_A_FIELD)
        found = _Decoded(MOST_FIELDS - before)
        try:
            found.read(command)
        except Unreadable:
            sink.send(None, 1, frame_bytes)
            return
        finally:
            self._fields_read = MOST_FIELDS - found.left
        if found.kind == CommandType.SUBSCRIBE:
            sink.subscribed()
        elif found.kind == CommandType.PRODUCER:
            sink.producer(found.producer, found.topic)
        elif found.kind == CommandType.SEND:
            sink.send(found.send, _messages(found.count, frame_bytes), frame_bytes)
        elif found.kind == CommandType.CLOSE_PRODUCER:
            if found.close is not None:
                sink.closed(found.close)
        elif found.two_kinds:
            # A broker that does not know the last type takes the one before.
            sink.send(None, 1, frame_bytes)

    def _end(self) -> None:
        """End the scan: later bytes are skipped as if one endless frame had begun."""
        self._left, self._head = _ENDLESS, b""
        self._sink.ended()
