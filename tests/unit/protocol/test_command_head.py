"""What the head of a frame says: its command, its size, and how many messages a batch has."""

import pytest

from protocol.command_head import CommandHead
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.sockets.frames import framed, ping, send


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


@pytest.mark.parametrize(("frame", "kind"), [(ping(), CommandType.PING), (send(b"x" * 90), CommandType.SEND)])
def test_a_head_has_the_command_and_the_size_of_its_frame(frame: bytes, kind: CommandType) -> None:
    head = CommandHead(frame)
    assert (head.kind, head.frame_bytes, head.whole) == (kind, len(frame), True)
    assert pb.BaseCommand.FromString(head.command).type == kind


def test_the_payload_is_counted_although_the_head_has_none_of_it() -> None:
    assert CommandHead(send(b"x" * 1_000_000)[:100]).payload_bytes == 1_000_000


def test_a_command_longer_than_the_head_is_said_to_be_cut() -> None:
    producer = pb.CommandProducer(topic="t" * 10_000, producer_id=1, request_id=1)
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)
    head = CommandHead(framed(command.SerializeToString())[:4096])
    assert head.kind == CommandType.PRODUCER
    assert not head.whole


@pytest.mark.parametrize("broker_entry", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_the_messages_of_a_batch_are_counted(broker_entry: bool, checksum: bool) -> None:
    assert CommandHead(message(17, b"payload", broker_entry, checksum)).messages() == 17


@pytest.mark.parametrize(
    "body", [b"", b"\x0e", b"\x0e\x01", b"\x0e\x02\xff\xff\xff\xff", b"\xff" * 40, b"\x0e\x01" * 9]
)
def test_headers_that_make_no_sense_count_as_one_message(body: bytes) -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=1, sequence_id=2))
    assert CommandHead(framed(command.SerializeToString(), body)).messages() == 1
