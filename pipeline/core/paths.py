"""Paths as Spark takes them, for patterns; and where the lines of proxy.conf go.

Rule: a path that a user named, or that was found on a disk, is the one that it says.
"""

import os
import re
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final
from urllib.parse import urlsplit

from pipeline.core.advice_text import FIRST_WORDS
from pipeline.core.errors import PipelineError

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


def refuse_unwritable(option: str, place: str) -> None:
    """Raise PipelineError if a directory here, or the one in which it would be made, cannot be written."""
    path = mounted(place)
    if path is None:
        return
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise PipelineError(f"{option}: got {place}, expected a directory: {there} is none")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PipelineError(f"{option}: got {place}, expected a directory to write to: {there} is read-only here")
    try:
        # What access does not tell of: a place of the kernel's, a quota, a share that maps root to nobody.
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise PipelineError(f"{option}: got {place}, expected a directory to write to: {error.strerror}") from error


def conf_path(out: str, given: str | None) -> Path | None:
    """Return where `advise` leaves lines of proxy.conf: by default beside the tables; None if that is no disk here."""
    if given is not None:
        return Path(given)
    return None if "://" in out else Path(out) / "advice.conf"


def is_fragment(path: Path) -> bool:
    """Return whether a file begins as the lines of an advice do."""
    return path.is_file() and path.read_text("utf-8", "replace").startswith(FIRST_WORDS)
