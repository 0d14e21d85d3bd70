import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.command_type import CommandType, peek_command_type
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.each import each


def test_numbers_are_those_of_the_generated_module() -> None:
    assert {kind.name: kind.value for kind in CommandType} == dict(pb.BaseCommand.Type.items())


@each("kind", CommandType)
def test_type_is_read_from_what_protobuf_writes(kind: CommandType) -> None:
    encoded = pb.BaseCommand(type=kind).SerializeToString()
    assert peek_command_type(encoded) == kind


def test_number_above_127_is_read_whole() -> None:
    assert peek_command_type(b"\x08\xac\x02") == 300


def test_type_behind_other_fields_is_found() -> None:
    other_fields = b"\x92\x01\x00" + b"\xa0\x06\x05" + b"\xad\x06abcd" + b"\xa9\x06abcdefgh"
    assert peek_command_type(other_fields + b"\x08\x12") == CommandType.PING


@pytest.mark.parametrize(
    "command",
    [
        b"",
        b"\x08",
        b"\x08\x80",
        b"\x92\x01\x00",
        b"\x92\x01",
        b"\x92\x01\x7fabc",
        b"\x0b\x08\x12",
        b"\xff" * 40,
    ],
    ids=[
        "empty",
        "cut after tag",
        "cut in number",
        "no type",
        "cut length",
        "body not there",
        "group",
        "garbage",
    ],
)
def test_bytes_without_a_type_give_none(command: bytes) -> None:
    assert peek_command_type(command) is None


@given(st.binary(max_size=64))
def test_any_bytes_give_a_number_or_none(command: bytes) -> None:
    peeked = peek_command_type(command)
    assert peeked is None or peeked >= 0
