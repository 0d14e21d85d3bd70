"""What the scanner finds in a client's stream: frames as clients send them, cut anywhere, and what no client sends."""

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.sockets.producer_frames import (
    CLIENT_FRAMES,
    Found,
    bare,
    found_in,
    number,
    part,
    producer_frame,
    send_frame,
)

TOPIC = b"persistent://public/default/orders-partition-3"
# The limits of `native/src/relay/producers.rs`.
MOST_DECODED, BYTES_A_FIELD, MOST_FIELDS, MOST_BEHIND, MOST_TOPIC_BYTES = 4096, 16, 256, 16, 512


@pytest.mark.parametrize(("frame", "found"), CLIENT_FRAMES.values(), ids=CLIENT_FRAMES)
def test_each_frame_of_a_client_is_found_cut_at_every_byte(frame: bytes, found: list[Found]) -> None:
    ping = bare(b"\x08\x12\x92\x01\x00")
    follower, after = send_frame(99, payload=b"next"), ("send", 99, 1, len(send_frame(99, payload=b"next")), None)
    stream = ping + frame + follower
    for cut in range(len(stream) + 1):
        assert found_in([stream[:cut], stream[cut:]]) == [*found, after]
    assert found_in([stream[at : at + 1] for at in range(len(stream))]) == [*found, after]


def test_a_chunk_of_five_megabytes_in_eighty_reads_is_one_message() -> None:
    frame = send_frame(2, payload=bytes(5_242_900), is_chunk=True)
    reads = [frame[at : at + 65_536] for at in range(0, len(frame), 65_536)]
    assert len(reads) > 80
    assert found_in([*reads, send_frame(2)]) == [
        ("send", 2, 1, len(frame), None), ("send", 2, 1, len(send_frame(2)), None)
    ]  # fmt: skip


def test_a_command_with_an_unknown_field_first_is_decoded_up_to_4_kib() -> None:
    unknown = b"\xfa\x3e" + number(100) + bytes(100)
    send, producer = send_frame(300, messages=7, payload=b"")[8:], producer_frame(TOPIC, 300)[8:]
    assert found_in([bare(unknown + send)])[0][:3] == ("send", 300, 7)
    assert found_in([bare(unknown + producer)]) == [("producer", 300, 0, 0, TOPIC)]
    large = b"\xfa\x3e" + number(MOST_DECODED) + bytes(MOST_DECODED)
    frame = bare(large + send)
    assert found_in([frame]) == [("send", None, 1, len(frame), None)]


@pytest.mark.threat("unusual-field-order")
def test_unusual_orders_bring_few_fields_at_once_and_later_as_many_as_their_bytes_pay_for() -> None:
    # Type, part, producer and sequence.
    filler, send = b"\x50\x00", send_frame(300, payload=b"")[8:]
    fits = bare(filler * (MOST_FIELDS - 4) + send)
    beyond = bare(filler * (MOST_FIELDS - 3) + send)
    known, unknown = ("send", 300), ("send", None)
    assert [found[:2] for found in found_in([fits])] == [known]
    assert [found[:2] for found in found_in([beyond])] == [unknown]
    size = len(bare(filler + send))
    paid, unpaid = (bare(filler + send, bytes(5 * BYTES_A_FIELD - size + more)) for more in (0, -1))
    assert [found[:2] for found in found_in([beyond, unpaid, paid, paid, unpaid, unpaid + paid])] == [
        unknown, unknown, known, known, unknown, unknown, known
    ]  # fmt: skip


def test_a_topic_that_is_too_long_is_not_told_and_its_producer_only_if_that_is_cheap() -> None:
    longest, longer = b"t" * MOST_TOPIC_BYTES, b"t" * (MOST_TOPIC_BYTES + 1)
    assert found_in([producer_frame(longest, 5)]) == [("producer", 5, 0, 0, longest)]
    assert found_in([producer_frame(longer, 5)]) == [("producer", 5, 0, 0, None)]
    assert found_in([producer_frame(b"t" * 65_536, 5)]) == [("producer", None, 0, 0, None)]


def test_a_schema_of_a_megabyte_behind_a_producer_is_skipped() -> None:
    frame = producer_frame(TOPIC, 5, schema=bytes(1_000_000))
    assert found_in([frame[:100], frame[100:], send_frame(5)])[:1] == [("producer", 5, 0, 0, TOPIC)]


@pytest.mark.parametrize(
    "head",
    [
        b"\xff" * 10,
        b"\x00" * 10,
        b"\x00\x00\x00\x08\x00\x00\x00\x05\x08\x06",
        b"\x7f\xff\xff\xff\x80\x00\x00\x00\x08\x06",
    ],
)
def test_sizes_that_make_no_sense_end_the_scan_for_good(head: bytes) -> None:
    for cut in range(1, 11):
        assert found_in([send_frame(1), head[:cut], head[cut:] + send_frame(1), send_frame(1)])[1:] == [
            ("ended", None, 0, 0, None)
        ]


@pytest.mark.parametrize("claimed", [0, 1 << 31, (1 << 64) - 1, (1 << 31) - 1])
def test_no_client_makes_up_more_messages_than_bytes(claimed: int) -> None:
    frame = send_frame(1, messages=claimed, payload=b"x" * 10)
    assert found_in([frame])[0][2] == (len(frame) if claimed == (1 << 31) - 1 else 1)


def test_honest_commands_of_every_kind_are_nothing_else() -> None:
    counted = {"subscribe", "producer", "send", "close_producer"}
    fields = [field for field in pb.BaseCommand.DESCRIPTOR.fields if field.message_type and field.name not in counted]
    commands = [b"\x08" + number(field.number) + part(field.number << 3 | 2, bytes(size)) for field in fields
                for size in (0, 1, 122, 123, 124, 126, 127, 128, 20_000)]  # fmt: skip
    # Commands of a newer release, with a part and without one.
    commands += [b"\x08\x64" + part(100 << 3 | 2, bytes(5000)), b"\x08\x64", b"\x08" + number(300)]
    frames = [bare(command) for command in commands]
    assert found_in([b"".join(frames)]) == []


def test_a_producer_with_many_options_needs_no_decoding() -> None:
    options = b"".join(number(tag << 3) + b"\x01" for tag in range(3, 3 + MOST_BEHIND))
    frame = bare(b"\x08\x05" + part(0x2A, part(0x0A, TOPIC), b"\x10\x05", options))
    assert found_in([frame] * 1000) == [("producer", 5, 0, 0, TOPIC)] * 1000
