"""Read the events of one file, whatever became of it.

Rule: what can be read is given, what cannot is told with its line, and nothing is passed over in silence. A line is at
most `LONGEST_LINE` bytes in memory, however well it was compressed.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple

from eventlog.members import GZIP

__all__ = ["LONGEST_LINE", "Problem", "read_events"]

LONGEST_LINE: Final = 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"

Reason = Literal["malformed", "too_long", "truncated", "damaged"]


class Problem(NamedTuple):
    """What could not be read: the line, counted from 1, why, and its beginning."""

    line: int
    reason: Reason
    text: str


def read_events(path: Path, tell: Callable[[Problem], None]) -> Iterator[dict[str, object]]:
    """Yield the events of a file, compressed or not, in their order; `tell` hears of each problem; raises OSError.

    `truncated`: the file ends in the middle of a flush or of a line; `damaged`: from there on it is no gzip.
    """
    with path.open("rb") as file:
        number = 0
        for number, line in enumerate(_lines(file), 1):
            if isinstance(line, Problem):
                tell(line._replace(line=number))
            elif (event := _event(line)) is not None:
                yield event
            else:
                tell(Problem(number, "malformed", _beginning(line)))


def _event(line: bytes) -> dict[str, object] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _lines(file: BinaryIO) -> Iterator[bytes | Problem]:
    """Yield whole lines, and in the place of others what is wrong with them."""
    rest, too_long = b"", False
    for data in _unpacked(file):
        if isinstance(data, Problem):
            yield data if not rest else data._replace(text=_beginning(rest))
            return
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            if too_long or len(line) > LONGEST_LINE:
                yield Problem(0, "too_long", _beginning(line))
            else:
                yield line
            too_long = False
        if len(rest) > LONGEST_LINE:
            rest, too_long = rest[:_CHUNK_BYTES], True
    if rest:
        yield Problem(0, "too_long" if too_long else "truncated", _beginning(rest))


def _unpacked(file: BinaryIO) -> Iterator[bytes | Problem]:
    data = file.read(_CHUNK_BYTES)
    if not data.startswith(_GZIP_MAGIC):
        while data:
            yield data
            data = file.read(_CHUNK_BYTES)
        return
    while data:
        member = zlib.decompressobj(GZIP)
        try:
            while data and not member.eof:
                yield member.decompress(data, _CHUNK_BYTES)
                data = member.unconsumed_tail or (member.unused_data if member.eof else file.read(_CHUNK_BYTES))
        except zlib.error as error:
            yield Problem(0, "damaged", str(error))
            return
        if not member.eof:
            yield Problem(0, "truncated", "")
            return
        data = data or file.read(_CHUNK_BYTES)


def _beginning(line: bytes) -> str:
    return line[:200].decode(errors="backslashreplace")
