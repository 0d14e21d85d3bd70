"""The walk over a command's bytes beside protobuf: what passes the walk decodes to few fields, in any split."""

from typing import Any

from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import MalformedFrame, TooManyFields
from protocol.field_walker import MAX_DEPTH, MAX_ENTRIES, NEVER_OVER_BYTES, FieldWalker, check_fields, read_request_id
from protocol.frames import varint
from protocol.pb import PulsarApi_pb2 as pb

# Numbers that commands have, and some that none has.
NUMBERS = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 10, 21, 23, 28, 32, 39, 1000])


def numbered(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def repeat(content: bytes, times: int) -> bytes:
    return content * times


LEAVES = st.one_of(
    st.builds(lambda number, value: varint(number << 3) + varint(value), NUMBERS, st.integers(0, 2**64 - 1)),
    st.builds(numbered, NUMBERS, st.binary(max_size=12)),
    st.builds(lambda number, value: varint(number << 3 | 5) + value, NUMBERS, st.binary(min_size=4, max_size=4)),
    st.builds(lambda number, value: varint(number << 3 | 1) + value, NUMBERS, st.binary(min_size=8, max_size=8)),
    st.binary(max_size=4),
)
FIELDS = st.recursive(
    st.lists(LEAVES, max_size=6).map(b"".join),
    lambda inner: st.lists(
        st.builds(repeat, st.builds(numbered, NUMBERS, inner), st.sampled_from([1, 1, 2, 63, 64, 65, 200])), max_size=3
    ).map(b"".join),
    max_leaves=6,
)
COMMANDS = FIELDS.filter(lambda content: len(content) < 100_000)


def most_entries(message: Message, depth: int = 0) -> tuple[int, int]:
    """Return the length of the longest repeated field below a message, and how deep messages are nested."""
    most, deepest = 0, depth
    for field, value in message.ListFields():
        values: Any = value if field.is_repeated else [value]
        if field.is_repeated:
            most = max(most, len(values))
        if field.message_type is not None:
            for each in values:
                inner, below = most_entries(each, depth + 1)
                most, deepest = max(most, inner), max(deepest, below)
    return most, deepest


def verdict(content: bytes) -> type[Exception] | None:
    try:
        FieldWalker().walk(content, 0, len(content), len(content))
    except (TooManyFields, MalformedFrame) as error:
        return type(error)
    return None


@given(COMMANDS)
def test_what_passes_decodes_to_few_entries(content: bytes) -> None:
    try:
        check_fields(content)
    except (TooManyFields, MalformedFrame):
        return
    try:
        decoded = pb.BaseCommand.FromString(content)
    except DecodeError:
        return
    most, deepest = most_entries(decoded)
    assert most <= MAX_ENTRIES
    assert deepest <= max(MAX_DEPTH, NEVER_OVER_BYTES // 2)


@given(COMMANDS)
def test_what_protobuf_writes_is_never_malformed(content: bytes) -> None:
    try:
        decoded = pb.BaseCommand.FromString(content)
    except DecodeError:
        return
    # Unknown fields may hold groups, which no known release writes.
    decoded.DiscardUnknownFields()
    assert verdict(decoded.SerializePartialToString()) is not MalformedFrame


@given(COMMANDS, st.data())
def test_a_walk_in_pieces_judges_as_a_walk_of_the_whole(content: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    before, after = b"before", b"after"
    whole = bytearray(before + content + after)
    walker, found = FieldWalker(), None
    start, end = len(before), len(before) + len(content)
    try:
        for there in [*(start + cut for cut in cuts), len(whole)]:
            # Bytes that have not arrived must not matter.
            arrived = whole[:there] + b"\xff" * (len(whole) - there)
            walker.walk(arrived, start, end, there)
    except (TooManyFields, MalformedFrame) as error:
        found = type(error)
    assert found is verdict(content)


@given(st.integers(0, 90), st.binary(max_size=200))
def test_no_bytes_make_the_request_id_raise(kind: int, command: bytes) -> None:
    read_request_id(kind, command)
