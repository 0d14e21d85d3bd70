"""Count the fields of a command on its bytes, before anything decodes it.

Sans-IO. A decoded field takes many times its bytes: half a million empty properties are 1 MiB on the wire and 200 MiB
decoded. So the entries of each repeated field, all fields together and their nesting are bounded here, on the bytes.
The bounds are read from the descriptors: a repeated field of a newer PulsarApi.proto is bounded without a change here.
A walk continues where it stopped, so a large frame is judged while it arrives; it costs at most MAX_FIELDS steps in
all, for values of any length are passed over in one step.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from protocol.command_type import CommandType, request_id_number
from protocol.errors import MalformedFrame, TooManyFields
from protocol.frames import read_varint
from protocol.pb import PulsarApi_pb2 as pb

# Entries of one repeated field of a command; real clients send a handful of properties. An entry of a few bytes takes
# about 90 bytes decoded.
MAX_ENTRIES: Final = 64
# Fields of a command on all levels, unknown ones of newer releases included: 64 entries have three fields each.
MAX_FIELDS: Final = 512
# Levels of messages inside a command; the deepest of PulsarApi.proto that is not recursive has four.
MAX_DEPTH: Final = 16
# An entry has at least a tag and a length, so that a shorter command cannot have more entries than MAX_ENTRIES.
NEVER_OVER_BYTES: Final = 2 * MAX_ENTRIES
# Lists of topics without number. The proxy decodes none: `protocol.topic_list` reads the bytes of a broker's list, and
# clients that send one are refused unread. Only who asks for lists (the demo's clients, tests) decodes them.
LIST_COMMANDS: Final = frozenset(
    {
        CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        CommandType.WATCH_TOPIC_LIST_SUCCESS,
        CommandType.WATCH_TOPIC_UPDATE,
        CommandType.WATCH_SCALABLE_TOPICS_UPDATE,
    }
)

_TYPE_TAG: Final = 0x08
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES: Final = 10
_LARGEST_TAG: Final = 0xFFFF_FFFF
# Bytes of a varint that are not its last.
_CONTINUED: Final = bytes(range(0x80, 0x100))
_PACKED_BYTES: Final = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}
_NOT_PACKED: Final = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


@dataclass(slots=True)
class Repeated:
    """A repeated field: its name, and the bytes of a packed number (0: varints, None: its entries are not packed)."""

    name: str
    packed_bytes: int | None


@dataclass(slots=True)
class Shape:
    """The fields of a message type that count: those that are repeated, and those with fields of their own."""

    repeated: dict[int, Repeated] = field(default_factory=dict)
    messages: dict[int, "Shape"] = field(default_factory=dict)

    @property
    def flat(self) -> bool:
        """Return whether a message of this type grows little when it is decoded."""
        return not self.repeated and not self.messages


def _shape(descriptor: Descriptor, shapes: dict[str, Shape]) -> Shape:
    """Return the shape of a message type, and of all types below it; types that contain each other share theirs."""
    known = shapes.get(descriptor.full_name)
    if known is not None:
        return known
    shape = shapes[descriptor.full_name] = Shape()
    for each in descriptor.fields:
        name = f"{descriptor.name}.{each.name}"
        if each.is_repeated:
            packable = each.message_type is None and each.type not in _NOT_PACKED
            shape.repeated[each.number] = Repeated(name, _PACKED_BYTES.get(each.type, 0) if packable else None)
        if each.message_type is not None:
            shape.messages[each.number] = _shape(each.message_type, shapes)
    return shape


class FieldWalker:
    """Walk the fields of one command; `walk` may be called again when more of its bytes are there.

    Nothing of the command is kept: only the place, the ends of the messages around it, and the counts.
    """

    __slots__ = ("_counts", "_ends", "_fields", "_position", "_shapes")

    def __init__(self) -> None:
        self._position = 0
        self._fields = 0
        self._shapes = [_command_shape()]
        # The ends of the messages around the place, the command's own not among them.
        self._ends: list[int] = []
        self._counts: dict[str, int] = {}

    def walk(self, data: bytes | bytearray | memoryview, start: int, end: int, there: int) -> None:
        """Count the fields of the command at `data[start:end]`, of which the bytes before `there` have arrived.

        Raises TooManyFields above a bound, MalformedFrame for bytes that are no fields.
        """
        position, last = start + self._position, min(end, there)
        while position < last:
            ends = self._ends
            while ends and position == start + ends[-1]:
                ends.pop()
                self._shapes.pop()
            inner_end = start + ends[-1] if ends else end
            try:
                tag, after = read_varint(data, position, min(last, inner_end))
                if tag is None:
                    break
                after = self._field(tag, data, start, after, inner_end, last)
            except _Incomplete:
                break
            position = after
            self._position = position - start
        if there >= end and position < end:
            raise MalformedFrame(f"got a command of {end - start} bytes whose last field is cut")

    def _field(
        self, tag: int, data: bytes | bytearray | memoryview, start: int, position: int, inner_end: int, last: int
    ) -> int:
        """Count one field; return where the next field begins, which may lie beyond `last`."""
        number, wire_type = tag >> 3, tag & 7
        if not number or tag > _LARGEST_TAG:
            raise MalformedFrame(f"got a field with tag {tag}")
        shape = self._shapes[-1]
        repeated = shape.repeated.get(number)
        inner: Shape | None = None
        entries = 1
        if wire_type == _LENGTH_DELIMITED:
            length, position = _length(data, position, min(last, inner_end))
            after = position + length
            if after > inner_end:
                raise MalformedFrame(f"got a field of {length} bytes in {inner_end - position}")
            inner = shape.messages.get(number)
            if repeated is not None and repeated.packed_bytes is not None:
                entries = _packed_entries(repeated.packed_bytes, data, position, after, last)
        elif wire_type == _VARINT:
            value, after = read_varint(data, position, min(last, inner_end))
            if value is None:
                raise _Incomplete
        elif wire_type in _FIXED_BYTES:
            after = position + _FIXED_BYTES[wire_type]
            if after > inner_end:
                raise MalformedFrame("got a number that is cut")
        else:
            # Groups: no known release has any, and protobuf descends into them.
            raise MalformedFrame(f"got a field of wire type {wire_type}")
        self._count(repeated, entries)
        if inner is None or (inner.flat and after - position <= NEVER_OVER_BYTES):
            return after
        if len(self._ends) >= MAX_DEPTH:
            raise TooManyFields(f"got messages nested deeper than {MAX_DEPTH} levels", "levels", MAX_DEPTH)
        self._ends.append(after - start)
        self._shapes.append(inner)
        return position

    def _count(self, repeated: Repeated | None, entries: int) -> None:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise TooManyFields(f"got more than {MAX_FIELDS} fields", "fields", MAX_FIELDS)
        if repeated is not None:
            name = repeated.name
            count = self._counts[name] = self._counts.get(name, 0) + entries
            if count > MAX_ENTRIES:
                raise TooManyFields(
                    f"got more than {MAX_ENTRIES} entries of {name}", name.rpartition(".")[2], MAX_ENTRIES
                )


class _Incomplete(Exception):
    """The bytes of a field's head have not all arrived."""


def check_fields(command: bytes | bytearray | memoryview) -> None:
    """Raise TooManyFields or MalformedFrame for a whole command that must not be decoded."""
    size = len(command)
    if size > NEVER_OVER_BYTES and not (command[0] == _TYPE_TAG and command[1] in LIST_COMMANDS):
        FieldWalker().walk(command, 0, size, size)


def read_request_id(kind: int, command: bytes | bytearray | memoryview) -> int | None:
    """Return the request id of a command without decoding the command; None if it is not among its first fields.

    Every known encoder writes fields in the order of their numbers, so that what is long comes later; only in ACK the
    messages come first.
    """
    number = request_id_number(kind)
    if number is None:
        return None
    position, end, inside = 0, len(command), False
    for _ in range(MAX_FIELDS):
        try:
            tag, position = read_varint(command, position, end)
            if tag is None:
                return None
            value, position = _length(command, position, end) if tag & 7 == _LENGTH_DELIMITED else (0, position)
            if inside and tag == number << 3:
                return read_varint(command, position, end)[0]
            if not inside and tag == kind << 3 | _LENGTH_DELIMITED:
                inside, end = True, min(end, position + value)
                continue
            position += value
            if tag & 7 == _VARINT:
                position = read_varint(command, position, end)[1]
            elif tag & 7 != _LENGTH_DELIMITED:
                position += _FIXED_BYTES.get(tag & 7, end)
        except (_Incomplete, MalformedFrame):
            return None
    return None


@cache
def _command_shape() -> Shape:
    return _shape(cast(Descriptor, pb.BaseCommand.DESCRIPTOR), {})


def _length(data: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    length, position = read_varint(data, position, end)
    if length is None:
        raise _Incomplete
    return length, position


def _packed_entries(packed_bytes: int, data: bytes | bytearray | memoryview, position: int, end: int, last: int) -> int:
    """Count the numbers of a packed field; a field of which a part has not arrived is counted when the rest is there.

    A long field is over the bound at once: a number has at most ten bytes.
    """
    length = end - position
    if packed_bytes:
        return length // packed_bytes
    if length > MAX_ENTRIES * _MAX_VARINT_BYTES:
        return MAX_ENTRIES + 1
    if end > last:
        raise _Incomplete
    return len(bytes(data[position:end]).translate(None, _CONTINUED))
