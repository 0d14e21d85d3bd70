import pytest

from protocol.errors import MalformedFrame
from protocol.frames import HEAD_BYTES, LARGEST_FRAME, read_head, read_sizes, varint
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.sockets.frames import framed, list_frame, ping, send

LIST = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


class TestHead:
    def test_sizes_type_and_request_id_are_read_from_the_first_bytes(self) -> None:
        frame = list_frame(300, ["persistent://public/default/a" * 40])
        head = read_head(frame[:HEAD_BYTES])
        assert (head.frame_bytes, head.command_bytes) == (len(frame), len(frame) - 8)
        assert (head.command_type, head.request_id) == (LIST, 300)

    def test_a_request_id_above_64_bits_is_cut_as_protobuf_cuts_it(self) -> None:
        frame = framed(b"\x08\x21" + b"\x8a\x02\x0b" + b"\x08" + b"\xff" * 9 + b"\x7f")
        command = pb.BaseCommand.FromString(frame[8:])
        assert read_head(frame).request_id == command.getTopicsOfNamespaceResponse.request_id == 2**64 - 1

    def test_a_command_without_fields_has_a_type_and_no_request_id(self) -> None:
        head = read_head(ping())
        assert (head.command_type, head.request_id) == (pb.BaseCommand.PING, None)
        assert head.rest_offset == len(ping())

    def test_a_payload_is_no_part_of_the_command(self) -> None:
        frame = send(b"\x08\x01 payload")
        head = read_head(frame)
        assert head.frame_bytes == len(frame)
        assert head.command_bytes == len(frame) - 8 - len(b"\x08\x01 payload")

    @pytest.mark.parametrize(
        "command",
        [
            b"\x8a\x02\x02\x08\x07\x08\x21",  # sub-message before the type
            b"\x08",  # a type that is cut
            b"\x08\x80",
            b"\x12\x00",  # no type
        ],
    )
    def test_a_type_that_does_not_stand_first_is_left_to_the_decoder(self, command: bytes) -> None:
        head = read_head(framed(command))
        assert (head.command_type, head.request_id) == (None, None)

    @pytest.mark.parametrize(
        "command",
        [
            b"\x08\x21\x8a\x02\x00",  # an empty sub-message
            b"\x08\x21\x8a\x02\x03\x12\x01a",  # topics first
            b"\x08\x21\x8a\x02\x02\x08\x80",  # a request id that is cut
            b"\x08\x21\x8a\x02\x02\x08\x07\x98\x01\x00",  # another field behind the sub-message
            b"\x08\x21\x0a\x02\x08\x07",  # another sub-message than the type says
            b"\x08\x21\x8a\x02\x7f\x08\x07",  # a sub-message beyond the command
        ],
    )
    def test_a_request_id_in_an_unusual_place_is_not_guessed(self, command: bytes) -> None:
        head = read_head(framed(command))
        assert (head.command_type, head.request_id) == (0x21, None)
        assert head.rest_bytes == 0


class TestSizes:
    @pytest.mark.parametrize(("total", "command"), [(0, 0), (3, 1), (4, 0), (10, 0), (10, 7), (10, 2**32 - 1)])
    def test_command_that_does_not_fit_its_frame_is_malformed(self, total: int, command: int) -> None:
        data = total.to_bytes(4, "big") + command.to_bytes(4, "big")
        with pytest.raises(MalformedFrame, match=f"command size {command} does not fit a frame of {total} bytes"):
            read_sizes(data, 0)

    def test_length_beyond_a_signed_integer_is_malformed(self) -> None:
        with pytest.raises(MalformedFrame, match="not the pulsar protocol"):
            read_sizes((LARGEST_FRAME + 1).to_bytes(4, "big") + b"\0\0\0\1", 0)

    def test_largest_frame_is_legal(self) -> None:
        data = b"xx" + LARGEST_FRAME.to_bytes(4, "big") + b"\0\0\0\1"
        assert read_sizes(data, 2) == (LARGEST_FRAME + 4, 1)


class TestEncoding:
    @pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**35, 2**64 - 1])
    def test_varint_is_protobufs(self, value: int) -> None:
        assert b"\x08" + varint(value) == pb.CommandGetTopicsOfNamespaceResponse(request_id=value).SerializeToString()
