from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.command_type import CommandType
from protocol.errors import MalformedFrame
from protocol.frames import leading_type
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.each import each


def test_numbers_are_those_of_the_generated_module() -> None:
    assert {kind.name: kind.value for kind in CommandType} == dict(pb.BaseCommand.Type.items())


@each("kind", CommandType)
def test_type_is_read_from_what_protobuf_writes(kind: CommandType) -> None:
    encoded = pb.BaseCommand(type=kind).SerializeToString()
    assert leading_type(encoded, 0)[0] == kind


def test_number_above_127_is_read_whole() -> None:
    assert leading_type(b"\x08\xac\x02", 0)[0] == 300


@pytest.mark.parametrize(
    "command",
    [b"", b"\x08", b"\x08\x80", b"\x92\x01\x00", b"\x92\x01\x00\x08\x12"],
    ids=["empty", "cut after tag", "cut in number", "no type", "another field first"],
)
def test_bytes_that_begin_with_no_type_give_none(command: bytes) -> None:
    assert leading_type(command, 0)[0] is None


@given(st.binary(max_size=64))
def test_any_bytes_give_a_number_or_none_or_are_malformed(command: bytes) -> None:
    with suppress(MalformedFrame):
        peeked, _ = leading_type(command, 0)
        assert peeked is None or peeked >= 0
