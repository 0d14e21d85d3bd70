"""The scanner of the native extension says what protocol.scanner says, about any bytes in any reads."""

import random
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.scanner import FrameMatch, FrameScanner
from tests.support.sockets.frames import (
    list_frame,
    pieces_of,
    ping,
    scalable_snapshot,
    send,
    watch_success,
    watch_update,
)

topics = st.lists(st.text(max_size=30), max_size=12)
sizes = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 40) | st.integers(0, 8)
frames = st.one_of(
    st.just(ping()),
    st.binary(max_size=400).map(send),
    topics.map(lambda names: send(watch_update(1, names))),
    topics.map(lambda names: list_frame(300, names)),
    topics.map(lambda names: watch_success(7, names)),
    topics.map(lambda names: watch_update(7, names)),
    topics.map(lambda names: scalable_snapshot(7, names)),
    # Heads whose sizes may make no sense, or announce gigabytes.
    st.builds(struct.Struct(">iiBB").pack, sizes, sizes, st.just(8), st.integers(60, 80)),
    st.binary(max_size=30),
)
streams = st.lists(frames, max_size=12).map(b"".join)
cuts = st.lists(st.integers(1, 90), max_size=200)


def told(match: FrameMatch | None) -> tuple[int, int, int, int, int, bool] | None:
    """Give a match of the Python scanner as the extension writes it."""
    if match is None:
        return None
    return match.start, match.successes, match.updates, match.frame_bytes, match.open_bytes, match.unwalkable


def check_equal(extension: Any, data: bytes, sizes: list[int]) -> None:
    ours, theirs = FrameScanner(), extension.FrameScanner()
    for piece in pieces_of(data, sizes):
        assert theirs.scan(piece) == told(ours.scan(memoryview(piece), len(piece)))
        assert theirs.ended == ours.ended


def test_both_scanners_say_the_same_about_sizes_at_the_edge(extension: Any) -> None:
    for total in (-1, 0, 4, 5, 6, 7, 8, (1 << 31) - 1, -(1 << 31)):
        for command in (-1, 0, 1, 2, 3, 4, (1 << 31) - 5, (1 << 31) - 1, -(1 << 31)):
            for kind in (64, 65, 66, 67, 76, 77, 78):
                check_equal(extension, struct.pack(">iiBB", total, command, 8, kind) + bytes(12), [])


@given(streams, cuts)
@settings(max_examples=400)
def test_both_scanners_say_the_same(extension: Any, data: bytes, sizes: list[int]) -> None:
    check_equal(extension, data, sizes)


@given(streams, st.integers(0, 1 << 30))
@settings(max_examples=300)
def test_both_scanners_say_the_same_about_damaged_streams(extension: Any, data: bytes, seed: int) -> None:
    chosen = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(chosen.randrange(4) if data else 0):
        damaged[chosen.randrange(len(damaged))] ^= 1 << chosen.randrange(8)
    check_equal(extension, bytes(damaged), [chosen.randint(1, 12) for _ in range(200)])
