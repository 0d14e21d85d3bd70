"""A stream's position is known whatever the pieces in which its frames come."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.frame_position import FramePosition

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=8)


def stream(sizes: list[int]) -> tuple[bytes, set[int]]:
    """Return frames of these sizes, and the offsets at which a frame ends."""
    data, ends = b"", {0}
    for size in sizes:
        data += size.to_bytes(4, "big") + bytes(size)
        ends.add(len(data))
    return data, ends


@given(SIZES, st.lists(st.integers(1, 30), min_size=1))
def test_it_is_inside_a_frame_wherever_no_frame_ends(sizes: list[int], pieces: list[int]) -> None:
    data, ends = stream(sizes)
    position, at, turn = FramePosition(), 0, 0
    # The buffer of a read is larger than what was read.
    while at < len(data):
        count = min(pieces[turn % len(pieces)], len(data) - at)
        position.feed(memoryview(data[at : at + count] + b"\xff\xff\xff\xff"), count)
        at, turn = at + count, turn + 1
        assert position.inside is (at not in ends)


def test_a_size_without_sense_is_never_over() -> None:
    position = FramePosition()
    position.feed(b"HTTP/1.1 200 OK\r\n", 17)
    for _ in range(100):
        position.feed(bytes(1000), 1000)
        assert position.inside
