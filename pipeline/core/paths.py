"""Paths as Spark takes them, for patterns; and where the lines of proxy.conf go.

Rule: a path that a user named, or that was found on a disk, is the one that it says.
"""

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

# The directory of a table in which Delta has its commits.
DELTA_LOG: Final = "_delta_log"
PATTERN_SIGNS: Final = re.compile(r"[][{}*?\\]")


def escaped(path: str) -> str:
    """Return the pattern that matches this path alone."""
    return PATTERN_SIGNS.sub(r"\\\g<0>", path)


def mounted(place: str) -> Path | None:
    """Return the path of a mounted directory, None for one of another file system."""
    parts = urlsplit(place)
    if parts.scheme not in ("", "file"):
        return None
    return Path(parts.path if parts.scheme else place).absolute()


def conf_path(out: str, given: str | None) -> Path | None:
    """Return where `advise` leaves lines of proxy.conf: by default beside the tables; None if that is no disk here."""
    if given is not None:
        return Path(given)
    return None if "://" in out else Path(out) / "advice.conf"
