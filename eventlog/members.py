"""Gzip members of an event file: unpack one, find the next, and sort a file into whole and damaged parts.

Rule: damage costs what it hit, and nothing behind it: the search goes on at the next header. Files may lie where others
can write: nothing is unpacked into memory as a whole, and what finds no member has an end.
"""

import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal, NamedTuple

__all__ = ["CHUNK_BYTES", "GZIP", "Stretch", "headers", "is_zero", "stretches", "unpacked"]

# As zlib counts: a window of 32 KiB, and the head and check sum of gzip.
GZIP: Final = 31
CHUNK_BYTES: Final = 64 * 1024
# A member begins so: deflate, and no flag that gzip does not know. By chance it stands in packed bytes once in 128 MiB.
_HEADER: Final = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
_HEADER_BYTES: Final = 4
# The bytes that may be unpacked in vain, each attempt counted with at least `ATTEMPT_BYTES`: about a second of work,
# and 4096 attempts, so that a list of stretches is at most some 2 MB. The rest of the file then counts as damaged.
VAIN_BYTES: Final = 256 * 1024 * 1024
ATTEMPT_BYTES: Final = 64 * 1024

Kind = Literal["sound", "unfinished", "damaged"]


class Stretch(NamedTuple):
    """Bytes from `start` to before `end`: sound members and the lines in them, or what is none.

    `unfinished` stands at the end alone: a member that the end of the file cuts off, or zeros, which a file system
    gives for what was never written.
    """

    kind: Kind
    start: int
    end: int
    lines: int = 0


class _Attempt(NamedTuple):
    """The outcome of reading a member: its `end`, or 0; `ran_out`: the file ended before anything was wrong."""

    end: int
    lines: int
    unpacked_bytes: int
    ran_out: bool


def unpacked(file: BinaryIO, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield the text of the member at `start`, at most `CHUNK_BYTES` at once, and where the member ends, 0 until known.

    Raises zlib.error if the member is damaged, EOFError if the file ends inside it, OSError.
    """
    file.seek(start)
    member = zlib.decompressobj(GZIP)
    while not member.eof:
        data = member.unconsumed_tail or file.read(CHUNK_BYTES)
        if not data:
            raise EOFError
        text = member.decompress(data, CHUNK_BYTES)
        yield text, file.tell() - len(member.unused_data) if member.eof else 0


def headers(file: BinaryIO, start: int) -> Iterator[int]:
    """Yield where members could begin, at or behind `start`; the file may be read elsewhere in between."""
    while True:
        file.seek(start)
        data = file.read(CHUNK_BYTES)
        for found in _HEADER.finditer(data):
            yield start + found.start()
        if len(data) < _HEADER_BYTES:
            return
        # A header may stand across two reads.
        start += len(data) - _HEADER_BYTES + 1


def stretches(file: BinaryIO) -> list[Stretch]:
    """Read a file from beginning to end; two stretches in a row are never of one kind; raises OSError."""
    size = file.seek(0, os.SEEK_END)
    found: list[Stretch] = []
    at = vain_bytes = 0
    while at < size:
        member = _member(file, at)
        if member.end:
            _add(found, Stretch("sound", at, member.end, member.lines))
        else:
            vain_bytes += max(ATTEMPT_BYTES, member.unpacked_bytes)
            following = next(headers(file, at + 1), size) if vain_bytes < VAIN_BYTES else size
            missing = following == size and (member.ran_out or is_zero(file, at))
            _add(found, Stretch("unfinished" if missing else "damaged", at, following))
        at = found[-1].end
    return found


def _add(found: list[Stretch], new: Stretch) -> None:
    if found and found[-1].kind == new.kind:
        before = found.pop()
        new = Stretch(new.kind, before.start, new.end, before.lines + new.lines)
    found.append(new)


def _member(file: BinaryIO, start: int) -> _Attempt:
    end = lines = count = 0
    try:
        for text, known_end in unpacked(file, start):
            end = known_end
            count += len(text)
            lines += text.count(b"\n")
    except (zlib.error, EOFError) as fault:
        return _Attempt(0, 0, count, ran_out=isinstance(fault, EOFError))
    return _Attempt(end, lines, count, ran_out=False)


def is_zero(file: BinaryIO, start: int) -> bool:
    """Return whether nothing but zeros stands from `start` on, as a file system gives for what it lost."""
    file.seek(start)
    return not any(map(any, iter(lambda: file.read(CHUNK_BYTES), b"")))
