"""What is read of compressed files that are not whole."""

import gzip
import io

import pytest

from eventlog.members import CHUNK_BYTES
from eventlog.members import CHUNK_BYTES as PIECE_BYTES
from pipeline.sources import salvage
from pipeline.sources.salvage import LOOK_BYTES, has_long_line, is_whole, lines_of

LINES = [b"one", b"", b"three", b"4" * 100]


def member(lines: list[bytes]) -> bytes:
    return gzip.compress(b"".join(line + b"\n" for line in lines), 1, mtime=0)


def read(content: bytes, *, compressed: bool = True) -> list[tuple[bytes, bool]]:
    return list(lines_of(io.BytesIO(content), compressed=compressed))


def test_cut_anywhere_every_line_before_the_cut_comes_out_whole() -> None:
    content = member(LINES) + member([b"five", b"six"])
    expected = [*LINES, b"five", b"six"]
    for end in range(1, len(content)):
        found = read(content[:end])
        lines = [line for line, damaged in found if not damaged]
        assert lines == expected[: len(lines)], end
        if end == len(member(LINES)):
            assert not any(damaged for _, damaged in found)
        else:
            assert [damaged for _, damaged in found] == [False] * len(lines) + [True]
            assert not is_whole(io.BytesIO(content[:end]))
        if end >= len(member(LINES)):
            assert lines[: len(LINES)] == LINES


def events_in(number: int) -> list[bytes]:
    return [b'{"member":%d,"line":%d}' % (number, line) for line in range(20)]


@pytest.mark.parametrize("damaged", [{0}, {1}, {0, 1}, {1, 3}, {4}, {0, 1, 2, 3, 4}])
@pytest.mark.parametrize("place", [0, 2, 3, 40, -6])
def test_damage_costs_the_members_it_is_in_and_no_other(damaged: set[int], place: int) -> None:
    members = [bytearray(member(events_in(number))) for number in range(5)]
    for number in damaged:
        members[number][place] ^= 0xFF
    found = read(b"".join(members))
    lines = [line for line, is_rest in found if not is_rest]
    assert lines == [line for number in range(5) if number not in damaged for line in events_in(number)]
    assert 1 <= sum(is_rest for _, is_rest in found) <= len(damaged)


@pytest.mark.parametrize(
    "odd",
    [b"\0" * 2 * LOOK_BYTES, b"a \x7f b", b"\xff\xfe", b"\x1f\x8b\x08\0"],
    ids=["zeros", "control", "no utf-8", "magic"],
)
def test_odd_bytes_in_a_plain_file_cost_no_line_but_their_own(odd: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 3 * CHUNK_BYTES // 2
    monkeypatch.setattr(salvage, "MAX_LINE_BYTES", most)
    lines = [odd, *events_in(0), b"x" * (4 * CHUNK_BYTES), *events_in(1)]
    assert read(b"\n".join(lines), compressed=False) == [(line[:most], False) for line in lines]


@pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "plain"])
@pytest.mark.parametrize("before", [0, 1, PIECE_BYTES - 1, CHUNK_BYTES])
@pytest.mark.parametrize("end", [b"", b"\n", b"\nmore\n"])
def test_line_that_is_longer_than_can_be_is_found_wherever_it_is(
    compressed: bool, before: int, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 2 * CHUNK_BYTES
    monkeypatch.setattr(salvage, "MAX_LINE_BYTES", most)
    short = b"s" * (most // 2) + b"\n"
    for length, expected in ((most, False), (most + 1, True)):
        content = short * (before // len(short)) + b"\n" * (before % len(short)) + b"x" * length + end
        file = io.BytesIO(gzip.compress(content, 1) if compressed else content)
        assert has_long_line(file, compressed=compressed) is expected
