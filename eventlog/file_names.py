"""The names of event files: `events-<proxy>-<boot>-<n>.jsonl.gz`, hidden as `.<name>.open` until they are finished.

Rule: readers see finished files only, because Spark and shells pass over names that begin with a dot. A name tells its
proxy without doubt, so that nobody deletes the files of another.
"""

import hashlib
import re
from typing import Final
from urllib.parse import quote

__all__ = ["finished_name", "is_open_name", "names_of", "new_name", "open_name"]

_ENDING: Final = r"-[0-9a-f]{16}-[0-9]{6,}\.jsonl\.gz"
_OPEN: Final = re.compile(r"\.(events-.+" + _ENDING + r")\.open")
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


def names_of(proxy_id: str) -> re.Pattern[str]:
    """Match the names of one proxy's finished files, of all its starts."""
    return re.compile("events-" + re.escape(_written(proxy_id)) + _ENDING)


def _written(proxy_id: str) -> str:
    """Write a proxy's name so that it can stand in a file name and is no other's."""
    written = quote(proxy_id, safe="")
    if len(written) > _LONGEST_PROXY:
        written = written[:_LONGEST_PROXY] + "~" + hashlib.sha256(proxy_id.encode()).hexdigest()[:16]
    return written
