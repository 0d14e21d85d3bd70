"""What is read of compressed files that are not whole."""

import gzip
import io
import random

import pytest

from pipeline.sources.salvage import CHUNK_BYTES, is_whole, lines_of

LINES = [b"one", b"", b"three", b"4" * 100]


def member(lines: list[bytes]) -> bytes:
    return gzip.compress(b"".join(line + b"\n" for line in lines), 1)


def read(content: bytes) -> list[tuple[bytes, bool]]:
    return list(lines_of(io.BytesIO(content)))


def test_whole_file_gives_its_lines_and_nothing_else() -> None:
    content = member(LINES) + member([b"five"])
    assert is_whole(io.BytesIO(content))
    assert read(content) == [(line, False) for line in [*LINES, b"five"]]


def test_empty_file_is_whole() -> None:
    assert is_whole(io.BytesIO(b""))
    assert read(b"") == []


def test_last_line_needs_no_line_break() -> None:
    assert read(gzip.compress(b"one\ntwo")) == [(b"one", False), (b"two", False)]


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


@pytest.mark.parametrize("content", [b"no gzip at all", member(LINES) + b"garbage"])
def test_what_is_no_gzip_is_the_damaged_rest(content: bytes) -> None:
    assert not is_whole(io.BytesIO(content))
    assert read(content)[-1] == (b"", True)
    assert [line for line, damaged in read(content) if not damaged] in ([], LINES)


def test_flipped_bits_are_found_by_the_checksum() -> None:
    content = bytearray(member([bytes(random.Random(1).choices(b"abcdef", k=5000))]))
    content[-6] ^= 1
    assert not is_whole(io.BytesIO(bytes(content)))


def test_lines_go_on_over_chunks() -> None:
    lines = [b"a" * (CHUNK_BYTES - 3), b"b" * (2 * CHUNK_BYTES), b"c"]
    assert [line for line, _ in read(member(lines))] == lines
