"""Paths as Spark takes them: for patterns.

Rule: a path that a user named, or that was found on a disk, is the one that it says.
"""

import re
from typing import Final

__all__ = ["PATTERN_SIGNS", "escaped"]

PATTERN_SIGNS: Final = re.compile(r"[][{}*?\\]")


def escaped(path: str) -> str:
    """Give the pattern that matches this path alone."""
    return PATTERN_SIGNS.sub(r"\\\g<0>", path)
