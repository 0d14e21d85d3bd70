"""Fields of a command are counted on its bytes: nothing that grows is decoded."""

from collections.abc import Iterator
from typing import cast

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from protocol import commands
from protocol.command_type import CommandType, request_id_field
from protocol.errors import MalformedFrame, TooManyFields
from protocol.field_walker import (
    LIST_COMMANDS,
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_FIELDS,
    NEVER_OVER_BYTES,
    FieldWalker,
    check_fields,
    read_request_id,
)
from protocol.frames import varint
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import VERDICTS, Role, State, Verdict
from proxy.brokers.connection import LARGE_ANSWERS
from tests.support.each import each

LONG = "x" * NEVER_OVER_BYTES


def lengthy(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def command_of(kind: int, content: bytes) -> bytes:
    return b"\x08" + varint(kind) + lengthy(kind, content)


def repeated_fields(
    descriptor: Descriptor, path: tuple[FieldDescriptor, ...] = ()
) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the way to every repeated field below a type; a type inside itself is followed once."""
    for field in descriptor.fields:
        way = (*path, field)
        if field.is_repeated:
            yield way
        types = [each.message_type for each in path]
        if field.message_type is not None and field.message_type not in types:
            yield from repeated_fields(field.message_type, way)


def entry_of(field: FieldDescriptor) -> bytes:
    """Build the smallest entry of a repeated field, as bytes on the wire."""
    if field.message_type is not None or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return lengthy(field.number, b"")
    return varint(field.number << 3) + b"\x01"


def ways() -> list[tuple[FieldDescriptor, ...]]:
    """Return the ways to all repeated fields of all commands."""
    return list(repeated_fields(cast(Descriptor, pb.BaseCommand.DESCRIPTOR)))


def named(way: tuple[FieldDescriptor, ...]) -> str:
    return ".".join(field.name for field in way)


def placed(way: tuple[FieldDescriptor, ...], content: bytes) -> bytes:
    for field in reversed(way[:-1]):
        content = lengthy(field.number, content)
    # A long unknown field: a command below NEVER_OVER_BYTES is not walked.
    return b"\x08\x17" + content + lengthy(1000, LONG.encode())


@pytest.mark.threat("request-grows-decoded")
@each("way", ways(), ids=named)
def test_every_repeated_field_is_bounded(way: tuple[FieldDescriptor, ...]) -> None:
    check_fields(placed(way, entry_of(way[-1]) * MAX_ENTRIES))
    with pytest.raises(TooManyFields, match=way[-1].name) as caught:
        check_fields(placed(way, entry_of(way[-1]) * (MAX_ENTRIES + 1)))
    assert (caught.value.what, caught.value.most) == (way[-1].name, MAX_ENTRIES)


@each(
    "way",
    [way for way in ways() if not way[-1].message_type and way[-1].type != FieldDescriptor.TYPE_STRING],
    ids=named,
)
def test_numbers_in_one_packed_field_are_counted_one_by_one(way: tuple[FieldDescriptor, ...]) -> None:
    def packed(count: int) -> bytes:
        return placed(way, lengthy(way[-1].number, b"\x81\x01" * count))

    check_fields(packed(MAX_ENTRIES))
    for count in (MAX_ENTRIES + 1, 100_000):
        with pytest.raises(TooManyFields):
            check_fields(packed(count))


def test_entries_of_a_field_are_counted_over_all_messages_around_them() -> None:
    schema = lengthy(3, lengthy(5, b"") * 40)
    with pytest.raises(TooManyFields, match="properties"):
        check_fields(command_of(CommandType.GET_OR_CREATE_SCHEMA, schema + schema))


def test_entries_in_another_command_s_sub_message_are_counted() -> None:
    hidden = lengthy(CommandType.GET_OR_CREATE_SCHEMA, lengthy(3, lengthy(5, b"") * 1000))
    with pytest.raises(TooManyFields, match="properties"):
        commands.decode_command(commands.PING_FRAME[8:] + hidden)


def test_fields_are_counted_that_no_descriptor_knows() -> None:
    unknown = b"\xc0\x3e\x01"
    check_fields(command_of(CommandType.LOOKUP, unknown * (MAX_FIELDS - 2)))
    with pytest.raises(TooManyFields, match="fields"):
        check_fields(command_of(CommandType.LOOKUP, unknown * (MAX_FIELDS - 1)))


def test_nesting_is_bounded() -> None:
    def nested(levels: int) -> bytes:
        content = lengthy(1000, LONG.encode())
        for _ in range(levels):
            content = lengthy(7, content)  # MessageIdData.first_chunk_message_id
        return command_of(CommandType.SEEK, lengthy(3, content))

    check_fields(nested(MAX_DEPTH - 2))
    with pytest.raises(TooManyFields, match="levels"):
        check_fields(nested(MAX_DEPTH - 1))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lengthy(8, b"")[:1], id="a tag without a length"),
        pytest.param(b"\x42\x80", id="half a length"),
        pytest.param(b"\x42\x05k", id="a text longer than the message around it"),
        pytest.param(b"\x41\x00\x00", id="half a number of eight bytes"),
        pytest.param(b"\x43\x44", id="a group"),
        pytest.param(b"\x02\x00", id="field 0"),
        pytest.param(b"\xff" * 9 + b"\x01\x00", id="a tag of 64 bits"),
        pytest.param(b"\x10" + b"\xff" * 11, id="a number without end"),
    ],
)
def test_bytes_that_are_no_fields_are_refused(broken: bytes) -> None:
    whole = command_of(CommandType.LOOKUP, lengthy(1, LONG.encode()) + broken)
    with pytest.raises(MalformedFrame):
        check_fields(whole)


def test_a_command_is_judged_while_it_arrives() -> None:
    whole = command_of(CommandType.GET_OR_CREATE_SCHEMA, lengthy(3, lengthy(5, b"") * 520_000))
    walker = FieldWalker()
    walker.walk(whole, 0, len(whole), 2 * MAX_ENTRIES)
    with pytest.raises(TooManyFields):
        walker.walk(whole, 0, len(whole), 2 * MAX_ENTRIES + 20)


class TestDecoding:
    def test_what_is_missing_is_named_without_looking_into_repeated_fields(self) -> None:
        entries = lengthy(8, b"") * 20
        with pytest.raises(MalformedFrame, match="LOOKUP command without topic, request_id"):
            commands.decode_command(command_of(CommandType.LOOKUP, entries))
        with pytest.raises(MalformedFrame, match="LOOKUP command without a required field of a field"):
            commands.decode_command(command_of(CommandType.LOOKUP, lengthy(1, b"t") + b"\x10\x01" + entries))

    def test_only_lists_that_the_proxy_never_decodes_are_not_counted(self) -> None:
        served = {
            (role, kind): verdict
            for (role, _), verdicts in VERDICTS.items()
            for kind, verdict in verdicts.items()
            if kind in LIST_COMMANDS and verdict is not Verdict.REFUSE
        }
        # The broker's answer is announced, and diverted or skipped.
        assert served == {(Role.BROKER, CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE): Verdict.SERVE}
        assert CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE in LARGE_ANSWERS
        assert CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE not in VERDICTS[Role.BROKER, State.CONNECTING]


class TestRequestId:
    @each("kind", [kind for kind in CommandType if request_id_field(kind)])
    def test_it_is_read_from_what_an_encoder_writes(self, kind: CommandType) -> None:
        command = pb.BaseCommand(type=kind)
        content = getattr(command, str(request_id_field(kind)))
        content.request_id = 0xFEDC_BA98_7654_3210
        for field in content.DESCRIPTOR.fields:
            if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
                setattr(content, field.name, LONG)
        assert read_request_id(kind, command.SerializePartialToString()) == 0xFEDC_BA98_7654_3210

    @pytest.mark.parametrize(
        ("kind", "command"),
        [
            pytest.param(CommandType.PING, commands.PING_FRAME[8:], id="a command without one"),
            pytest.param(999, command_of(999, b"\x08\x01"), id="a command of a newer release"),
            pytest.param(CommandType.LOOKUP, command_of(CommandType.LOOKUP, lengthy(8, b"") * 1000 + b"\x10\x01"),
                         id="behind a thousand fields"),
            pytest.param(CommandType.LOOKUP, b"\x08\x17", id="no content"),
            pytest.param(CommandType.LOOKUP, b"\x08\x17\xba\x01\x05\x0a\x7f", id="content that is cut"),
            pytest.param(CommandType.LOOKUP, b"\x08\x17\xba\x01\x02\x10\x80", id="a number that is cut"),
            pytest.param(CommandType.LOOKUP, b"\x08\x17\x0b\x0c", id="a group"),
        ],
    )  # fmt: skip
    def test_it_is_none_where_it_is_not_among_the_first_fields(self, kind: int, command: bytes) -> None:
        assert read_request_id(kind, command) is None
