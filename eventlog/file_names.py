"""The names of event files: `events-<proxy>-<boot>-<n>.jsonl.gz`, hidden as `.<name>.open` until they are finished.

Rule: readers see finished files only, because Spark and shells ignore names that begin with a dot. A name identifies
its proxy, so two proxies never write the same file; other files in a directory are never treated as event files.
"""

import hashlib
import re
from typing import Final, NamedTuple
from urllib.parse import quote

__all__ = [
    "FileName",
    "copy_name",
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
    """Return the name of the n-th file of a process; the names of a process sort by age."""
    return f"events-{_written(proxy_id)}-{boot_id}-{number:06d}.jsonl.gz"


def open_name(name: str) -> str:
    """Return the name of a file while it is being written."""
    return f".{name}.open"


def is_open_name(name: str) -> bool:
    """Return whether a name is that of an event file that is, or was, being written."""
    return _OPEN.fullmatch(name) is not None


def finished_name(name: str) -> str:
    """Return the final name of an open file."""
    found = _OPEN.fullmatch(name)
    assert found is not None, name
    return found.group(1)


def damaged_name(name: str) -> str:
    """Return the name under which a damaged file is kept whose sound parts are finished as `name`."""
    return f".{name}.damaged"


def saved_name(name: str) -> str:
    """Return the name of the copy of the sound parts while it is being written."""
    return f".{name}.saved"


def copy_name(name: str) -> str:
    """Return the name of a finished file with the sound parts of any damaged one, also of a hidden one."""
    stem = name.removeprefix(".").removesuffix(".open").removesuffix(".damaged")
    return f"{stem.removesuffix('.gz').removesuffix('.jsonl')}.recovered.jsonl.gz"


class FileName(NamedTuple):
    """The parts of a file name: the proxy in its quoted form, the start of the proxy, and the number of the file."""

    proxy: str
    boot_id: str
    number: int


def file_name(name: str) -> FileName | None:
    """Parse the name of a finished or damaged file; return None for any other name."""
    found = _PARTS.fullmatch(name)
    if found is None or name.startswith(".") != bool(found.group(4)):
        return None
    return FileName(found.group(1), found.group(2), int(found.group(3)))


def _written(proxy_id: str) -> str:
    """Return a unique form of a proxy's name that is allowed in file names."""
    written = quote(proxy_id, safe="")
    if len(written) > _LONGEST_PROXY:
        written = written[:_LONGEST_PROXY] + "~" + hashlib.sha256(proxy_id.encode()).hexdigest()[:16]
    return written
