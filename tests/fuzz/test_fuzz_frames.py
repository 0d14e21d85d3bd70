"""Any bytes from a peer give frames, counts or a RemoteProtocolError; nothing else, and no memory beyond the caps."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from protocol.commands import decode_command
from protocol.errors import RemoteProtocolError
from protocol.field_walker import LIST_COMMANDS, MAX_ENTRIES
from protocol.frames import Frame, read_head, varint
from protocol.framing import BodyEnd, FrameAnnounced, FrameDecoder, Signal
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import CountingScanner, DelegatingScanner, OpaqueAnswer, TopicListAnswer, TopicListScanner
from tests.support.native import found_by, native_class
from tests.support.sockets.frames import list_frame, pieces_of

CAP = 2000
LIST = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE

sizes = st.integers(0, 40).map(lambda size: size.to_bytes(4, "big"))
# Bytes that look like frames reach far deeper than random ones.
plausible = st.lists(
    st.one_of(
        st.builds(lambda total, command, rest: total + command + rest, sizes, sizes, st.binary(max_size=50)),
        st.binary(max_size=40).map(
            lambda body: (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
        ),
        st.lists(st.text(max_size=9), max_size=30).map(lambda topics: list_frame(5, topics)),
        st.sampled_from([b"\x80\0\0\0", b"\xff" * 8, b"\0" * 8]),
    ),
    max_size=8,
).map(b"".join)
mutated = st.builds(
    lambda data, position, byte: data[: position % (len(data) + 1)] + byte + data[position % (len(data) + 1) + 1 :],
    plausible,
    st.integers(0, 400),
    st.binary(max_size=2),
)
any_bytes = st.one_of(st.binary(max_size=300), plausible, mutated)
cuts = st.lists(st.integers(1, 60), max_size=30)


@given(any_bytes, cuts, st.integers(0, 3))
def test_any_bytes_give_frames_or_a_remote_error(data: bytes, pieces: list[int], taste: int) -> None:
    decoder = FrameDecoder(CAP, announce_above=60, announce_types=frozenset({LIST}))
    try:
        for piece in pieces_of(data, pieces):
            decoder.receive_data(piece)
            read_all(decoder, taste)
            assert decoder.stored_bytes <= CAP
        decoder.receive_eof()
    except RemoteProtocolError:
        return


def read_all(decoder: FrameDecoder, taste: int) -> None:
    while not isinstance(event := decoder.next_event(), Signal):
        if isinstance(event, Frame):
            assert 8 + len(event.command) + len(event.payload) == event.head.frame_bytes <= CAP
        elif isinstance(event, FrameAnnounced):
            decide(decoder, event, taste)
        else:
            assert isinstance(event, BodyEnd)


def decide(decoder: FrameDecoder, event: FrameAnnounced, taste: int) -> None:
    head = event.head
    if taste == 0 or head.request_id is None:
        decoder.skip()
    elif taste == 1:
        decoder.store()
    elif taste == 2:
        decoder.divert(OpaqueAnswer(head, SlabPool()))
    else:
        decoder.divert(TopicListAnswer(head, SlabPool(), counting=head.rest_bytes % 2 == 0))


@given(any_bytes)
def test_a_head_never_says_anything_else_than_the_decoded_command(data: bytes) -> None:
    try:
        head = read_head(data)
    except RemoteProtocolError:
        return
    assert 8 <= head.rest_offset <= 8 + head.command_bytes <= head.frame_bytes
    if head.request_id is None or head.command_type != LIST or head.rest_offset > len(data):
        return
    command = pb.BaseCommand()
    try:
        command.MergeFromString(data[8 : 8 + head.command_bytes])
    except DecodeError:
        return
    answer = command.getTopicsOfNamespaceResponse
    rest = pb.CommandGetTopicsOfNamespaceResponse()
    rest.MergeFromString(data[head.rest_offset : 8 + head.command_bytes])
    assert list(answer.topics) == list(rest.topics)
    if not rest.HasField("request_id"):
        assert answer.request_id == head.request_id


fields = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.binary(max_size=200).map(lambda name: b"\x12" + len(name).to_bytes(1, "big") + name),
        st.integers(1, 9000).map(
            lambda length: b"\x12" + bytes([length & 0x7F | 0x80, length >> 7 & 0x7F]) + b"\x12" * length
        ),
    ),
    max_size=12,
).map(b"".join)


@given(fields, cuts)
def test_any_bytes_are_a_topic_list_or_malformed(data: bytes, pieces: list[int]) -> None:
    scanner = CountingScanner(len(data))
    accepted = takes(scanner, data, pieces)
    light = TopicListScanner(len(data))
    assert takes(light, data, pieces) == accepted
    if (native := native_class()) is not None:
        other = DelegatingScanner(len(data), native)
        assert takes(other, data, pieces) == accepted
        assert not accepted or found_by(other) == found_by(scanner)
    if not accepted:
        return
    plain = pb.CommandGetTopicsOfNamespaceResponse()
    plain.MergeFromString(data)  # what is accepted can be decoded by a client
    assert scanner.topic_count == len(plain.topics)
    names = pb.TopicListNames()
    names.MergeFromString(data)
    assert scanner.name_bytes == sum(map(len, names.topics))
    assert (light.filtered, light.changed) == (plain.filtered, plain.changed)


def takes(scanner: TopicListScanner, data: bytes, pieces: list[int]) -> bool:
    """Return whether the scanner finds no mistake in a list that comes in pieces."""
    try:
        for piece in pieces_of(data, pieces):
            scanner.feed(bytearray(piece))
    except RemoteProtocolError:
        return False
    return True


properties = st.builds(
    lambda entry, count: entry * count, st.sampled_from([b"\x42\x00", b"\x2a\x00"]), st.integers(0, 90)
)
contents = st.lists(st.one_of(st.binary(max_size=20), properties, fields), max_size=5).map(b"".join)


@given(st.integers(2, 81), contents, st.binary(max_size=30))
def test_any_bytes_are_a_command_of_few_fields_or_a_remote_error(kind: int, content: bytes, rest: bytes) -> None:
    command = b"\x08" + varint(kind) + varint(kind << 3 | 2) + varint(len(content)) + content + rest
    try:
        decoded = decode_command(command)
    except RemoteProtocolError:
        return
    if decoded.type not in LIST_COMMANDS:
        request = decoded.lookupTopic if decoded.type == pb.BaseCommand.LOOKUP else decoded.getOrCreateSchema.schema
        assert len(request.properties) <= MAX_ENTRIES


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-OpenSSH_9\r\n", b"\0" * 16]
)
def test_other_protocols_are_refused_at_once(first: bytes) -> None:
    decoder = FrameDecoder(64 * 1024)
    decoder.receive_data(first)
    with pytest.raises(RemoteProtocolError):
        decoder.next_event()
