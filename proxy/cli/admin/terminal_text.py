"""Texts of strangers on a terminal: how wide they are, and which characters may be shown.

Rule: what clients choose (principals, addresses in headers, versions) must neither move the cursor, nor change the
order of what stands beside them, nor make a line wider than it is counted.
"""

import unicodedata
from typing import Final

_SUBSTITUTE: Final = "?"
# Letters of right-to-left scripts, and numbers that follow them: they would turn the numbers of their row around.
_TURNING: Final = frozenset(("R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"))
# Marks stand above the letter before, any number of them, up to the lines above and below.
_MARKS: Final = frozenset(("Mn", "Me", "Mc"))


def plain(text: str) -> str:
    """Return `text` with each character replaced that is not printable, changes the order, or has no column."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def width(text: str) -> int:
    """Return the number of columns of a text that `plain` returned: characters of East Asia take two."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int, end: str = "...") -> str:
    """Return as much of a plain text as fits, with `end` in place of the rest."""
    if width(text) <= columns:
        return text
    room = columns - len(end)
    taken = 0
    for position, char in enumerate(text):
        taken += _columns(char)
        if taken > room:
            return text[:position] + end
    return text


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Return a plain text filled up with blanks; `right`: in front of the text."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def _shown(char: str) -> str:
    if not char.isprintable() or unicodedata.category(char) in _MARKS or unicodedata.bidirectional(char) in _TURNING:
        return _SUBSTITUTE
    return char


def _columns(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
