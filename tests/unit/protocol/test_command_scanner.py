"""Frames seen from outside: every command is found, whatever the reads, and a payload costs nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.command_scanner import HEAD_BYTES, CommandScanner, ScannedFrame
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.sockets.frames import framed, pieces_of, ping, send


def scan(data: bytes, sizes: list[int] | None = None) -> list[ScannedFrame]:
    scanner, found = CommandScanner(), []
    for piece in [data] if sizes is None else pieces_of(data, sizes):
        found += scanner.scan(memoryview(piece), len(piece))
    return found


def message(number: int, payload: bytes, broker_entry: bool = False, checksum: bool = True) -> bytes:
    """Frame a MESSAGE that holds a batch of `number` messages."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=number
    ).SerializeToString()
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=pb.CommandMessage(consumer_id=3))
    command.message.message_id.ledgerId = command.message.message_id.entryId = 1
    body = len(metadata).to_bytes(4, "big") + metadata + payload
    if checksum:
        body = b"\x0e\x01" + b"\x12\x34\x56\x78" + body
    if broker_entry:
        entry = pb.BrokerEntryMetadata(broker_timestamp=7, index=8).SerializeToString()
        body = b"\x0e\x02" + len(entry).to_bytes(4, "big") + entry + body
    return framed(command.SerializeToString(), body)


@given(st.lists(st.sampled_from([0, 1, 100, 5_000, 70_000]), max_size=6), st.lists(st.integers(1, 9_000), min_size=1))
def test_every_frame_is_found_once_in_reads_of_any_size(payloads: list[int], sizes: list[int]) -> None:
    frames = [frame for size in payloads for frame in (ping(), send(b"x" * size))]
    found = scan(b"".join(frames), sizes)
    assert [(frame.kind, frame.frame_bytes) for frame in found] == [
        (CommandType.PING if number % 2 == 0 else CommandType.SEND, len(frame)) for number, frame in enumerate(frames)
    ]
    assert all(pb.BaseCommand.FromString(frame.command).type == frame.kind for frame in found)


def test_of_a_large_frame_only_the_head_is_kept() -> None:
    scanner = CommandScanner()
    frame = send(b"x" * 1_000_000)
    (found,) = scanner.scan(frame[:HEAD_BYTES], HEAD_BYTES)
    assert len(found.head) == HEAD_BYTES
    assert found.payload_bytes == 1_000_000
    assert scanner.scan(frame[HEAD_BYTES:], len(frame) - HEAD_BYTES) == []
    assert scanner.scan(ping(), len(ping()))[0].kind == CommandType.PING


def test_a_command_longer_than_the_head_is_said_to_be_cut() -> None:
    producer = pb.CommandProducer(topic="t" * 10_000, producer_id=1, request_id=1)
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)
    (found,) = scan(framed(command.SerializeToString()))
    assert found.kind == CommandType.PRODUCER
    assert not found.whole


@pytest.mark.parametrize("broker_entry", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_the_messages_of_a_batch_are_counted(broker_entry: bool, checksum: bool) -> None:
    (found,) = scan(message(17, b"payload", broker_entry, checksum))
    assert found.messages() == 17


@pytest.mark.parametrize(
    "body", [b"", b"\x0e", b"\x0e\x01", b"\x0e\x02\xff\xff\xff\xff", b"\xff" * 40, b"\x0e\x01" * 9]
)
def test_headers_that_make_no_sense_count_as_one_message(body: bytes) -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=1, sequence_id=2))
    (found,) = scan(framed(command.SerializeToString(), body))
    assert found.messages() == 1


@pytest.mark.parametrize("sizes", [b"\xff" * 8, b"\0" * 8, b"\0\0\0\5\0\0\0\3", b"\0\0\0\5\0\0\0\1"])
def test_sizes_that_make_no_sense_end_the_walk_for_good(sizes: bytes) -> None:
    scanner = CommandScanner()
    assert scanner.scan(sizes, len(sizes)) == []
    assert scanner.ended
    assert scanner.scan(ping(), len(ping())) == []
