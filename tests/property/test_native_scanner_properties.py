"""The native topic-list scanner against Python's on lists and on damaged lists: the same verdict in the same words,
after the same bytes, and the same flags and counts. What both accept is what protobuf accepts.
"""

from collections.abc import Sequence

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import MalformedFrame
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SLAB_BYTES
from protocol.topic_list import MOST_FIELDS, MOST_SLOW_FIELDS, CountingScanner
from tests.support.native import found_by, native_scanner
from tests.support.sockets.frames import pieces_of

Verdict = tuple[int, str]


def number(value: int, size: int = 1) -> bytes:
    """Encode a number, in more bytes than it needs if `size` says so."""
    encoded = bytearray()
    while value > 0x7F or len(encoded) < size - 1:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


lengths = st.sampled_from([0, 1, 17, 18, 126, 127, 128, 300, 4090, 4096, 4100])
contents = st.builds(
    lambda letter, length: (letter * length)[:length], st.sampled_from([b"a", b"\x12", b"\x80", "é".encode()]), lengths
)
sizes = st.sampled_from([1, 1, 1, 1, 2, 5, 6, 10, 11])
names = st.builds(
    lambda name, tag, length: number(0x12, tag) + number(len(name), length) + name, contents, sizes, sizes
)
texts = st.builds(
    lambda tag, text: number(tag) + number(len(text)) + text, st.sampled_from([0x22, 0x7A, 0x0A]), contents
)
numbers = st.builds(
    lambda tag, value, size: number(tag) + number(value, size),
    st.sampled_from([0x18, 0x28, 0x08, 0x78, 0x10, (2**29 - 1) << 3, 2**29 << 3]),
    st.sampled_from([0, 1, 127, 2**64 - 1]),
    sizes,
)
groups = st.builds(
    lambda depth, inside: b"\x7b" * depth + inside + b"\x7c" * depth,
    st.sampled_from([1, 2, 100, 101]),
    st.sampled_from([b"", b"\x12\x01a", b"\x00\x01", b"\x0b\x0c", b"\x0b"]),
)
fields = st.one_of(names, names, names, texts, numbers, groups, st.binary(max_size=12))
chunks = st.lists(st.integers(0, 6000) | st.integers(0, 20), max_size=40)


def verdict(scanner: CountingScanner, pieces: Sequence[bytes]) -> Verdict | tuple[object, ...]:
    """Return what a scanner finds, or at which piece it refuses the bytes, and in which words."""
    for index, piece in enumerate(pieces):
        try:
            scanner.feed(bytearray(piece))
        except MalformedFrame as error:
            return index, str(error)
    return found_by(scanner)


def agree(data: bytes, pieces: Sequence[bytes], total: int | None = None) -> bool:
    """Compare both scanners; return whether they accept the bytes."""
    size = len(data) if total is None else total
    own = verdict(CountingScanner(size), pieces)
    assert verdict(native_scanner(size), pieces) == own
    return len(own) > 2


@pytest.mark.threat("native-scanner-broken")
@given(st.lists(fields, max_size=30), chunks, st.integers(0, 2))
@example([b"\x12\x01a\x22\x01\xff"], [], 0)  # a hash that is no UTF-8
@example([b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"a" * 5000], [], 0)  # a length of seventy bits
def test_both_find_the_same_in_any_bytes(parts: list[bytes], cuts: list[int], missing: int) -> None:
    data = b"".join(parts)
    agree(data, list(pieces_of(data, cuts)), len(data) + missing)


@given(st.lists(fields, max_size=12))
def test_what_is_accepted_in_one_piece_is_what_protobuf_accepts(parts: list[bytes]) -> None:
    data = b"".join(parts)
    accepted, plain = agree(data, [data]), pb.TopicListNames()
    try:
        plain.MergeFromString(data)
    except DecodeError:
        assert not accepted
        return
    # The answer's own request id comes before these bytes.
    assert accepted == (not plain.HasField("request_id"))
    if accepted:
        (scanner := native_scanner(len(data))).feed(bytearray(data))
        assert (scanner.topic_count, scanner.name_bytes) == (len(plain.topics), sum(map(len, plain.topics)))


@pytest.mark.threat("native-scanner-broken")
@pytest.mark.parametrize(
    "field",
    [
        b"\x12\x00", b"\x12\x01\x12", b"\x7a\x00", b"\x18\x00", b"\x12\x0e" + b"\x12" * 14,
        b"\x12\x80\x01" + b"\x12" * 128, b"\x12\x90\x00" + b"\x12" * 16,
    ],
)  # fmt: skip
@pytest.mark.parametrize("tail", [120, 127])
def test_the_limits_of_a_walk_are_the_same(field: bytes, tail: int) -> None:
    """A last name full of the tag's byte makes Python walk, whole (127) or cut (120)."""
    for limit in (MOST_FIELDS, MOST_SLOW_FIELDS):
        for count in range(limit - 2, limit + 3):
            data = field * count + b"\x12\x7f" + b"\x12" * tail
            agree(data, [data[at : at + SLAB_BYTES] for at in range(0, len(data), SLAB_BYTES)], len(data) + 1)
