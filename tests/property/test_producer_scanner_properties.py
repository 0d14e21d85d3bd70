"""The scanner of a client's stream finds the same however the bytes are cut, and in commands of any order what protobuf
reads.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.native import offered
from tests.support.sockets.frames import pieces_of
from tests.support.sockets.producer_frames import (
    bare,
    close_frame,
    found_in,
    number,
    part,
    producer_frame,
    send_frame,
    subscribe_frame,
)

# The limit of `native/src/relay/producers.rs`.
MOST_TOPIC_BYTES = 512
ids = st.integers(0, 300) | st.integers(0, 2**64 - 1)
topics = st.binary(max_size=30) | st.sampled_from([b"t" * 511, b"t" * 512, b"t" * 513, b"t" * 700, b"t" * 5000])
counts = st.none() | st.integers(0, 200) | st.sampled_from([2**31 - 1, 2**31, 2**64 - 1])
sends = st.builds(
    lambda producer, sequence, messages, payload: send_frame(
        producer, sequence=sequence, messages=messages, payload=payload
    ),
    ids,
    ids,
    counts,
    st.binary(max_size=80) | st.just(b"\xff" * 200),
)
usual = st.one_of(
    sends,
    sends,
    st.builds(producer_frame, topics, ids),
    st.builds(lambda topic, producer: producer_frame(topic, producer, schema=b"s" * 700), topics, ids),
    st.builds(close_frame, ids),
    st.builds(subscribe_frame, topics),
    st.just(bare(b"\x08\x12\x92\x01\x00")),
)
fields = st.one_of(
    st.builds(lambda tag, value: number(tag) + number(value), st.sampled_from([8, 16, 24, 0x7FF8]), ids),
    st.builds(
        lambda tag, part: number(tag) + number(len(part)) + part,
        st.sampled_from([0x22, 0x2A, 0x32, 0x7A, 0x0A, 0x7FFA]),
        st.binary(max_size=20) | st.just(b"\x08\x05\x10\x07\x18\x02"),
    ),
    st.sampled_from([b"\x09" + bytes(8), b"\x0d" + bytes(4), b"\x0b\x0c", b"\x00", b"\xff" * 11]),
)
unusual = st.builds(
    lambda parts: bare(b"\x08" + b"".join(parts), b"payload"), st.lists(fields, max_size=8)
) | st.builds(lambda parts: bare(b"".join(parts) + b"\x10\x10"), st.lists(fields, max_size=8))
streams = st.lists(usual | unusual | st.binary(max_size=12), max_size=12).map(b"".join)
cuts = st.lists(st.integers(0, 40) | st.integers(0, 2000), max_size=60)


@given(streams, cuts)
def test_the_same_is_found_however_the_bytes_are_cut(stream: bytes, sizes: list[int]) -> None:
    assert found_in(list(pieces_of(stream, sizes))) == found_in([stream])


@given(st.lists(usual, max_size=20))
def test_a_drip_of_the_room_never_leaves_its_frame(frames: list[bytes]) -> None:
    scanner, stream = offered("ProducerScanner")(), b"".join(frames)
    at, ends = 0, []
    while at < len(stream):
        room = scanner.room
        scanner.scan(stream[at : at + room])
        at += room
        if scanner.between_frames:
            ends.append(at)
    assert ends == [sum(map(len, frames[: index + 1])) for index in range(len(frames))]


PARTS = {
    "send": (6, st.lists(st.sampled_from(["producer_id", "sequence_id", "num_messages", "is_chunk"]), max_size=6)),
    "producer": (5, st.lists(st.sampled_from(["producer_id", "request_id", "topic", "epoch"]), max_size=6)),
    "close_producer": (15, st.lists(st.sampled_from(["producer_id", "request_id"]), max_size=6)),
}
values = {
    "topic": st.text(max_size=20) | st.just("t" * 600),
    "num_messages": st.integers(1, 7),
    "is_chunk": st.booleans(),
}


@given(st.sampled_from(sorted(PARTS)), st.data())
def test_fields_in_any_order_and_number_are_what_protobuf_reads(name: str, choices: st.DataObject) -> None:
    kind, orders = PARTS[name]
    part = b""
    for field in choices.draw(orders):
        one = getattr(pb.BaseCommand(), name)
        setattr(one, field, choices.draw(values.get(field, ids)))
        part += one.SerializePartialToString()
    tag = number(kind << 3 | 2)
    # A type behind the part is an unusual order: all fields are read, the last of each counts.
    command = tag + number(len(part)) + part + b"\x08" + number(kind)
    frame = bare(command, bytes(10))
    expected = pb.BaseCommand()
    expected.MergeFromString(command)
    found, read = found_in([frame]), getattr(expected, name)
    producer = read.producer_id if read.HasField("producer_id") else None
    if name == "send":
        assert found == [("send", producer, max(1, read.num_messages), len(frame), None)]
    elif name == "producer":
        topic = read.topic.encode() if read.HasField("topic") else None
        assert found == [("producer", producer, 0, 0, topic if len(topic or b"") <= MOST_TOPIC_BYTES else None)]
    else:
        assert found == ([] if producer is None else [("closed", producer, 0, 0, None)])


types = st.sampled_from([4, 5, 6, 6, 15, 18, 9, 127, 300, (1 << 32) + 6]).map(lambda kind: b"\x08" + number(kind))
numbers = st.builds(
    lambda tag, value: bytes([tag]) + number(value), st.sampled_from([0x08, 0x08, 0x10, 0x10, 0x18, 0x30]), ids
)
names = st.sampled_from([b"\x0a\x01a", b"\x0a\x02bc"])
parts = st.one_of(
    st.builds(lambda tag, inside: part(tag, *inside), st.sampled_from([0x32, 0x7A]), st.lists(numbers, max_size=6)),
    st.builds(lambda tag, inside: part(tag, *inside), st.just(0x2A), st.lists(numbers | names, max_size=6)),
)


@pytest.mark.threat("doubled-producer-fields")
@given(types, st.lists(types | parts, max_size=4), cuts)
def test_no_type_producer_or_topic_that_comes_twice_hides_what_protobuf_reads(
    first: bytes, rest: list[bytes], sizes: list[int]
) -> None:
    command = first + b"".join(rest)
    frame = bare(command, bytes(10))
    read = pb.BaseCommand()
    read.MergeFromString(command)
    found = found_in(list(pieces_of(frame, sizes)))
    kind = read.type if read.HasField("type") else None
    one_type = not any(piece[0] == 0x08 for piece in rest)
    unknown = [("send", None, 1, len(frame), None)]
    if found == unknown:
        assert not one_type or (kind == 6 and not read.send.HasField("producer_id"))
    elif kind == 6:
        messages = min(max(1, read.send.num_messages), len(frame))
        producer = read.send.producer_id if read.send.HasField("producer_id") else None
        assert found == [("send", producer, messages, len(frame), None)]
    elif kind == 5:
        producer = read.producer.producer_id if read.producer.HasField("producer_id") else None
        topic = read.producer.topic.encode() if read.producer.HasField("topic") else None
        assert found == [("producer", producer, 0, 0, topic)]
    elif kind == 15 and read.close_producer.HasField("producer_id"):
        assert found == [("closed", read.close_producer.producer_id, 0, 0, None)]
    else:
        assert found == ([("subscribed", None, 0, 0, None)] if kind == 4 else [])
