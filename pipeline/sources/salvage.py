"""Reads event files that Spark refuses, or should not get: compressed files that end in the middle or are damaged, and
files with a line that is longer than any memory.

Rule: damage costs the member it is in, not those behind it: the next that is sound, or that the end of the file cuts,
is looked for, and what is between comes out once, marked. A file that its name does not call compressed is read as it
is, as Spark does, and so is a text that its name does call so. The beginning of a line that is too long stands for it.
Memory: `MAX_LINE_BYTES` and one chunk of a file at a time. Plain Python, since it runs in Spark's workers.
"""

import codecs
import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from eventlog.members import CHUNK_BYTES, headers, unpacked

# The longest line that is read whole, even of a file without line breaks, as a crash can leave one full of zeros; Spark
# takes a few times as much of its heap.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
# No smaller compressed file has such a line: deflate makes of a byte 1032 at the most.
COMPRESSED_BYTES: Final = MAX_LINE_BYTES // 1032
MAGIC: Final = b"\x1f\x8b"
# As much of a file tells whether it is text.
LOOK_BYTES: Final = 4096
CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


def is_whole(file: BinaryIO) -> bool:
    """Return whether this is a compressed file that can be read to its end."""
    return not _is_text(file) and not any(damaged for _, damaged in _chunks(file))


def has_long_line(file: BinaryIO, *, compressed: bool) -> bool:
    """Return whether a line has more than `MAX_LINE_BYTES`; in a damaged file, whether one before the damage has."""
    length = 0
    for chunk, damaged in _chunks(file) if compressed else _plain(file):
        if damaged:
            return False
        # Both looks at a chunk end at once where lines are short: next to the reading they cost nothing.
        first = chunk.find(b"\n")
        if length + first > MAX_LINE_BYTES:
            return True
        length = length + len(chunk) if first < 0 else len(chunk) - 1 - chunk.rfind(b"\n")
        if length > MAX_LINE_BYTES:
            return True
    return False


def lines_of(file: BinaryIO, *, compressed: bool) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a file; one marked with True is what was left of a line, or nothing, where damage begins.

    A line of more than `MAX_LINE_BYTES` is cut there; its other bytes are passed by.
    """
    rest = bytearray()
    for chunk, damaged in _chunks(file) if compressed and not _is_text(file) else _plain(file):
        begin, *lines = chunk.split(b"\n")
        rest += begin[: MAX_LINE_BYTES - len(rest)]
        for line in lines:
            yield bytes(rest), False
            rest[:] = line
        if damaged:
            yield bytes(rest), True
            rest.clear()
    if rest:
        yield bytes(rest), False


def _is_text(file: BinaryIO) -> bool:
    file.seek(0)
    head = file.read(LOOK_BYTES)
    file.seek(0)
    if not head or head.startswith(MAGIC) or CONTROL.search(head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _plain(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    file.seek(0)
    return ((piece, False) for piece in iter(lambda: file.read(CHUNK_BYTES), b""))


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Decompress member after member; a pair with True stands where some could not be read."""
    at: int | None = 0
    size = file.seek(0, os.SEEK_END)
    while at is not None and at < size:
        begin = at
        try:
            for plain, end in unpacked(file, begin):
                yield plain, False
                at = end
        except (zlib.error, EOFError):
            yield b"", True
            at = next((place for place in headers(file, begin + 1) if _is_worth_reading(file, place)), None)


def _is_worth_reading(file: BinaryIO, at: int) -> bool:
    """Return whether a member ends well, or the end of the file cuts it and it began as an event."""
    first = b""
    try:
        for plain, _ in unpacked(file, at):
            first = first or plain[:1]
    except zlib.error:
        return False
    except EOFError:
        return first == b"{"
    return True
