"""The names of event files: `events-<proxy>-<boot>-<n>.jsonl.gz`, hidden as `.<name>.open` until they are finished.

Rule: readers see finished files only, because Spark and shells pass over names that begin with a dot. A name tells its
proxy without doubt, so that two never write one file; nothing else in a directory is taken for an event file.
"""

import hashlib
import re
from typing import Final, NamedTuple
from urllib.parse import quote

__all__ = [
    "FileName",
    "damaged_name",
    "file_name",
    "finished_name",
    "is_open_name",
    "new_name",
    "open_name",
    "saved_name",
]

_NAME: Final = r"events-.+-[0-9a-f]{16}-[0-9]{6,}\.jsonl\.gz"
_OPEN: Final = re.compile(rf"\.({_NAME})\.open")
_PARTS: Final = re.compile(r"(?:events|\.events)-(.+)-([0-9a-f]{16})-([0-9]{6,})\.jsonl\.gz(\.damaged)?")
# A file name has 255 bytes.
_LONGEST_PROXY: Final = 150


def new_name(proxy_id: str, boot_id: str, number: int) -> str:
    """Give the name of the n-th file of a process; names of one process sort by age."""
    return f"events-{_written(proxy_id)}-{boot_id}-{number:06d}.jsonl.gz"


def open_name(name: str) -> str:
    """Give the name of the file while it is written."""
    return f".{name}.open"


def is_open_name(name: str) -> bool:
    """Tell whether it is the name of an event file that is, or was, being written."""
    return _OPEN.fullmatch(name) is not None


def finished_name(name: str) -> str:
    """Give the name that an open file gets when it is finished."""
    found = _OPEN.fullmatch(name)
    assert found is not None, name
    return found.group(1)


def damaged_name(name: str) -> str:
    """Give the name under which a file is kept whose sound parts are finished as `name`."""
    return f".{name}.damaged"


def saved_name(name: str) -> str:
    """Give the name of the copy of what is sound while it is written."""
    return f".{name}.saved"


class FileName(NamedTuple):
    """Whose file it is: a proxy as it is written in names, one of its starts, and which file of that."""

    proxy: str
    boot_id: str
    number: int


def file_name(name: str) -> FileName | None:
    """Read the name of a finished file, or of one kept as damaged; None for any other."""
    found = _PARTS.fullmatch(name)
    if found is None or name.startswith(".") != bool(found.group(4)):
        return None
    return FileName(found.group(1), found.group(2), int(found.group(3)))


def _written(proxy_id: str) -> str:
    """Write a proxy's name so that it can stand in a file name and is no other's."""
    written = quote(proxy_id, safe="")
    if len(written) > _LONGEST_PROXY:
        written = written[:_LONGEST_PROXY] + "~" + hashlib.sha256(proxy_id.encode()).hexdigest()[:16]
    return written
