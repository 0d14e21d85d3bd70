"""Which parts of an event file are whole: its gzip members, one after the other, and what lies between them.

Rule: damage costs what it hit, and nothing behind it: the search goes on at the next header. Files may lie where others
can write: nothing is unpacked into memory as a whole, and what finds no member has an end.
"""

import os
import zlib
from typing import BinaryIO, Final, Literal, NamedTuple

__all__ = ["GZIP", "Stretch", "stretches"]

# As zlib counts: a window of 32 KiB, and the head and check sum of gzip.
GZIP: Final = 31
CHUNK_BYTES: Final = 64 * 1024
# The head of a member as zlib writes it: deflate, no flags. By chance it stands in packed bytes once in 4 GiB.
HEADER: Final = b"\x1f\x8b\x08\x00"
# What may be unpacked in vain, each attempt counted with at least so many bytes: about a second of work,
# and 4096 attempts, so that a list of stretches is at most some 2 MB. What is behind them counts as damaged.
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
    """What became of reading a member; `ran_out`: the file ended before anything was wrong."""

    sound: bool
    end: int
    lines: int
    unpacked_bytes: int
    ran_out: bool


def stretches(file: BinaryIO) -> list[Stretch]:
    """Read a file from beginning to end; two stretches in a row are never of one kind; raises OSError."""
    size = file.seek(0, os.SEEK_END)
    found: list[Stretch] = []
    at = vain_bytes = 0
    while at < size:
        member = _member(file, at)
        if member.sound:
            _add(found, Stretch("sound", at, member.end, member.lines))
        else:
            vain_bytes += max(ATTEMPT_BYTES, member.unpacked_bytes)
            following = _next_header(file, at + 1) if vain_bytes < VAIN_BYTES else size
            missing = following == size and (member.ran_out or _is_zero(file, at))
            _add(found, Stretch("unfinished" if missing else "damaged", at, following))
        at = found[-1].end
    return found


def _add(found: list[Stretch], new: Stretch) -> None:
    if found and found[-1].kind == new.kind:
        before = found.pop()
        new = Stretch(new.kind, before.start, new.end, before.lines + new.lines)
    found.append(new)


def _member(file: BinaryIO, start: int) -> _Attempt:
    member = zlib.decompressobj(GZIP)
    file.seek(start)
    read = lines = unpacked = 0
    try:
        while not member.eof:
            data = member.unconsumed_tail
            if not data:
                data = file.read(CHUNK_BYTES)
                read += len(data)
            if not data:
                return _Attempt(False, start, 0, unpacked, ran_out=True)
            text = member.decompress(data, CHUNK_BYTES)
            unpacked += len(text)
            lines += text.count(b"\n")
    except zlib.error:
        return _Attempt(False, start, 0, unpacked, ran_out=False)
    return _Attempt(True, start + read - len(member.unused_data), lines, unpacked, ran_out=False)


def _next_header(file: BinaryIO, start: int) -> int:
    """Give where the next header stands at or behind `start`, or where the file ends."""
    file.seek(start)
    data = b""
    while more := file.read(CHUNK_BYTES):
        # A header may stand across two reads.
        data = data[-len(HEADER) + 1 :] + more
        found = data.find(HEADER)
        if found >= 0:
            return file.tell() - len(data) + found
    return file.tell()


def _is_zero(file: BinaryIO, start: int) -> bool:
    file.seek(start)
    return not any(map(any, iter(lambda: file.read(CHUNK_BYTES), b"")))
