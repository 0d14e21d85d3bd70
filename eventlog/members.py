"""The whole parts of an event file: its gzip members, and the spans of damage between them.

Rule: damage costs only the bytes that it hit: the search continues at the next header. Other users may be able to write
the files, so no member is unpacked into memory as a whole, and the search for members is bounded.
"""

import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal, NamedTuple

__all__ = ["CHUNK_BYTES", "GZIP", "GzipSpan", "gzip_spans", "headers", "is_zero", "unpacked"]

# zlib's code for a window of 32 KiB, and the header and check sum of gzip.
GZIP: Final = 31
CHUNK_BYTES: Final = 64 * 1024
# The header of a member: deflate, and only flags that gzip knows. Packed bytes match by chance once in 128 MiB.
_HEADER: Final = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
_HEADER_BYTES: Final = 4
# Bound of the bytes that are unpacked in vain, each attempt counted with a minimum: about a second of work and at most
# 4096 attempts, so a list of spans takes at most some 2 MB. All bytes after the bound count as damaged.
VAIN_BYTES: Final = 256 * 1024 * 1024
ATTEMPT_BYTES: Final = 64 * 1024

Kind = Literal["sound", "unfinished", "damaged"]


class GzipSpan(NamedTuple):
    """The bytes from `start` to before `end`: sound members with their lines, or bytes outside of any.

    Only the last span can be `unfinished`: a member that the end of the file cuts off, or zeros, which a file system
    returns for bytes that were never written.
    """

    kind: Kind
    start: int
    end: int
    lines: int = 0


class _Attempt(NamedTuple):
    """The result of reading a member: its `end`, or 0; `ran_out`: the file ended before any damage."""

    end: int
    lines: int
    unpacked_bytes: int
    ran_out: bool


def unpacked(file: BinaryIO, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield the text of the member at `start`, at most `CHUNK_BYTES` at once, and its end, 0 until known.

    Raise zlib.error if the member is damaged, EOFError if the file ends inside it, and OSError.
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
    """Yield the possible starts of members from `start` on; the file may be read elsewhere in between."""
    while True:
        file.seek(start)
        data = file.read(CHUNK_BYTES)
        for found in _HEADER.finditer(data):
            yield start + found.start()
        if len(data) < _HEADER_BYTES:
            return
        # A header may span two reads.
        start += len(data) - _HEADER_BYTES + 1


def gzip_spans(file: BinaryIO) -> list[GzipSpan]:
    """Return the spans of a file in order; neighbours are never of the same kind; raise OSError."""
    size = file.seek(0, os.SEEK_END)
    found: list[GzipSpan] = []
    at = vain_bytes = 0
    while at < size:
        member = _member(file, at)
        if member.end:
            _add(found, GzipSpan("sound", at, member.end, member.lines))
        else:
            vain_bytes += max(ATTEMPT_BYTES, member.unpacked_bytes)
            following = next(headers(file, at + 1), size) if vain_bytes < VAIN_BYTES else size
            missing = following == size and (member.ran_out or is_zero(file, at))
            _add(found, GzipSpan("unfinished" if missing else "damaged", at, following))
        at = found[-1].end
    return found


def _add(found: list[GzipSpan], new: GzipSpan) -> None:
    if found and found[-1].kind == new.kind:
        before = found.pop()
        new = GzipSpan(new.kind, before.start, new.end, before.lines + new.lines)
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
    """Return whether all bytes from `start` on are zero, as a file system returns for lost data."""
    file.seek(start)
    return not any(map(any, iter(lambda: file.read(CHUNK_BYTES), b"")))
