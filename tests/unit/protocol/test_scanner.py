import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from protocol.scanner import FrameMatch, FrameScanner
from tests.support.each import each
from tests.support.sockets.frames import (
    framed,
    ping,
    watch_success,
    watch_update,
)

SUCCESS = watch_success(1, ["persistent://a/b/c"] * 20)
UPDATE = watch_update(1, ["persistent://a/b/d"])
WATCHES = (
    CommandType.WATCH_TOPIC_LIST_SUCCESS,
    CommandType.WATCH_TOPIC_UPDATE,
    CommandType.WATCH_SCALABLE_TOPICS_UPDATE,
)


def scan(scanner: FrameScanner, data: bytes) -> FrameMatch | None:
    return scanner.scan(memoryview(data), len(data))


def found(match: FrameMatch | None) -> tuple[int, int, int, int, int]:
    assert match is not None
    return (
        match.start,
        match.successes,
        match.updates,
        match.frame_bytes,
        match.open_bytes,
    )


@each("kind", [k for k in CommandType if k not in WATCHES])
def test_other_commands_are_of_no_interest(kind: CommandType) -> None:
    assert scan(FrameScanner(), framed(bytes((0x08, kind)) + bytes(30))) is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x80\x00\x00\x00" + bytes(20),
        b"\x00\x00\x00\x05\x00\x00\x00\x01\x08\x41" + bytes(20),
        b"\x00\x00\x00\x10\x00\x00\x00\x0d\x08\x41" + bytes(20),
        bytes(20),
    ],
    ids=["above 2 GiB", "no room for a type", "command beyond its frame", "zeros"],
)
@pytest.mark.parametrize("cut", [3, 10, 15])
def test_sizes_that_make_no_sense_end_the_walk_and_are_told_once(garbage: bytes, cut: int) -> None:
    scanner = FrameScanner()
    told = [scan(scanner, piece) for piece in (ping() + garbage[:cut], garbage[cut:], UPDATE, SUCCESS)]
    ended = [match for match in told if match is not None]
    assert [match.unwalkable for match in ended] == [True]
    assert ended[0].frame_bytes == 0
    assert scanner.ended


def test_all_bytes_of_a_read_that_ends_the_walk_lie_before_its_start() -> None:
    data = ping() + bytes(40)
    match = scan(FrameScanner(), data)
    assert match is not None
    assert match.start == len(data)


def test_a_watch_frame_before_garbage_is_still_told() -> None:
    match = scan(FrameScanner(), UPDATE + bytes(20))
    assert found(match) == (0, 0, 1, len(UPDATE), 0)
    assert match is not None
    assert match.unwalkable


def test_a_walk_that_has_not_ended_says_so_however_large_the_frame() -> None:
    scanner = FrameScanner()
    scan(scanner, b"\x7f\xff\xff\xff\x00\x00\x00\x02\x08\x09")
    assert not scanner.ended


def test_only_bytes_in_use_are_walked() -> None:
    # What a read has left of an earlier one lies behind them in the same buffer.
    place = memoryview(bytearray(ping() + UPDATE))
    assert FrameScanner().scan(place, len(ping())) is None


def test_a_type_that_does_not_stand_first_passes() -> None:
    # Legal protobuf, written by no known encoder.
    whole = pb.BaseCommand(
        type=pb.BaseCommand.WATCH_TOPIC_UPDATE,
        watchTopicUpdate=pb.CommandWatchTopicUpdate(watcher_id=1, topics_hash="h"),
    ).SerializeToString()
    assert scan(FrameScanner(), framed(whole[2:] + whole[:2])) is None


def test_matches_of_two_reads_add_up() -> None:
    scanner = FrameScanner()
    first = scan(scanner, SUCCESS[:50])
    assert first is not None
    first.join(scan(scanner, SUCCESS[50:80]), 30)
    assert found(first) == (0, 1, 0, len(SUCCESS), len(SUCCESS) - 80)
    first.join(scan(scanner, SUCCESS[80:] + UPDATE[:30]), len(SUCCESS) - 50)
    assert found(first) == (0, 1, 1, len(SUCCESS) + len(UPDATE), len(UPDATE) - 30)
