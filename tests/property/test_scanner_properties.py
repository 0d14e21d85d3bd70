"""The extension's walker and the decoder agree about every stream of frames, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.command_type import CommandType
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from tests.support.native import offered
from tests.support.sockets.frames import (
    drain,
    list_frame,
    pieces_of,
    ping,
    scalable_diff,
    scalable_snapshot,
    send,
    watch_success,
    watch_update,
)

SUCCESS = CommandType.WATCH_TOPIC_LIST_SUCCESS
WATCHES = (SUCCESS, CommandType.WATCH_TOPIC_UPDATE, CommandType.WATCH_SCALABLE_TOPICS_UPDATE)
topics = st.lists(st.text(max_size=30), max_size=12)
frames = st.lists(
    st.one_of(
        st.just(ping()),
        st.binary(max_size=400).map(send),
        topics.map(lambda names: send(watch_update(1, names))),
        topics.map(lambda names: list_frame(300, names)),
        topics.map(lambda names: watch_success(7, names)),
        topics.map(lambda names: watch_update(7, names)),
        topics.map(lambda names: scalable_snapshot(7, names)),
        topics.map(lambda names: scalable_diff(300, names, names)),
    ),
    max_size=12,
)
cuts = st.lists(st.integers(1, 90), max_size=200)


def watches_by_decoder(data: bytes) -> list[tuple[int, int, int]]:
    """Give type, first byte and size of each watch frame."""
    decoder, position, found = FrameDecoder(), 0, []
    decoder.receive_data(data)
    for event in drain(decoder):
        assert isinstance(event, Frame)
        if event.head.command_type in WATCHES:
            found.append((event.head.command_type, position, event.head.frame_bytes))
        position += event.head.frame_bytes
    return found


@given(frames, cuts)
def test_in_any_split_the_scanner_counts_what_the_decoder_finds(stream: list[bytes], sizes: list[int]) -> None:
    data = b"".join(stream)
    scanner, successes, updates, frame_bytes = offered("FrameScanner")(), 0, 0, 0
    for piece in pieces_of(data, sizes):
        if (match := scanner.scan(piece)) is not None:
            _, firsts, others, size, _, unwalkable = match
            assert not unwalkable
            successes, updates, frame_bytes = successes + firsts, updates + others, frame_bytes + size
    expected = watches_by_decoder(data)
    firsts = sum(kind == SUCCESS for kind, _, _ in expected)
    assert (successes, updates) == (firsts, len(expected) - firsts)
    assert frame_bytes == sum(size for _, _, size in expected)


@given(frames, cuts)
def test_in_any_split_a_match_says_where_the_frames_begin_and_end(stream: list[bytes], sizes: list[int]) -> None:
    data = b"".join(stream)
    scanner, position = offered("FrameScanner")(), 0
    expected = watches_by_decoder(data)
    for piece in pieces_of(data, sizes):
        end = position + len(piece)
        match = scanner.scan(piece)
        # A frame is known when its tenth byte is there.
        begun = [(first, first + size) for _, first, size in expected if position < first + 10 <= end]
        assert (match is not None) == bool(begun)
        if match is not None:
            assert position + match[0] == max(position, begun[0][0])
            assert match[4] == max(0, begun[-1][1] - end)
        position = end


@given(st.binary(max_size=300), cuts)
def test_no_bytes_at_all_make_the_scanner_fail(data: bytes, sizes: list[int]) -> None:
    scanner = offered("FrameScanner")()
    for piece in pieces_of(data, sizes):
        scanner.scan(piece)
