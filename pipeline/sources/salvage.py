"""Reads what is whole in event files that Spark refuses: compressed files that end in the middle, or are damaged.

Rule: every line before the damage comes out as it is; what is after it comes out once, marked. Memory: one line and one
chunk of a file at a time. Plain Python, since it runs in Spark's workers.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

__all__ = ["is_whole", "lines_of"]

CHUNK_BYTES: Final = 1024 * 1024
# Of a file without line breaks, which is no event file; its line is cut into pieces of this size.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
GZIP: Final = 16 + zlib.MAX_WBITS


def is_whole(file: BinaryIO) -> bool:
    """Say whether a compressed file can be read to its end."""
    return not any(damaged for _, damaged in _chunks(file))


def lines_of(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Give the lines of a compressed file, and as the last, marked with True, what is left if it is damaged."""
    rest = b""
    for chunk, damaged in _chunks(file):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from ((line, False) for line in lines)
        if damaged:
            yield rest, True
            return
        if len(rest) > MAX_LINE_BYTES:
            yield rest, False
            rest = b""
    if rest:
        yield rest, False


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Decompress member after member; a pair with True is the last, of a file that is not whole."""
    member = zlib.decompressobj(GZIP)
    begun = False
    for compressed in _pieces(file):
        data = compressed
        while data:
            begun = True
            try:
                plain = member.decompress(data, CHUNK_BYTES)
            except zlib.error:
                yield b"", True
                return
            data = member.unconsumed_tail
            yield plain, False
            if member.eof:
                data, member, begun = member.unused_data, zlib.decompressobj(GZIP), False
    if begun:
        yield b"", True


def _pieces(file: BinaryIO) -> Iterable[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")
