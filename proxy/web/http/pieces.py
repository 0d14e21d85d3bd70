"""How much of what has come on an HTTP connection is parsed at a time: little, if the bytes are many lines.

A chunk has two lines, and takes some 0.2 us to be parsed and 0.5 us to be read, so a piece takes 0.3 ms at most.
"""

from typing import Final

# Parsed at a time, or fewer bytes if there are more than so many lines.
PIECE_BYTES: Final = 16_384
FEW_LINES: Final = 512
SMALL_PIECE_BYTES: Final = 2048
# The step of a task that reads a piece of a body takes about this long, or twice as long as parsing it.
READ_SECONDS: Final = 0.00005


def has_many_lines(data: bytes) -> bool:
    """Return whether the next piece of some bytes has to be small."""
    return len(data) > FEW_LINES and data.count(b"\n", 0, PIECE_BYTES) > FEW_LINES


def piece_bytes(held: bytes) -> int:
    """Return how many of the bytes that are held are parsed at a time."""
    return SMALL_PIECE_BYTES if has_many_lines(held) else PIECE_BYTES
