"""Limit of the total size of event files in a directory: the oldest files of any proxy are deleted.

Rule: the limit is for the directory. Proxies in pods get new names at each start, and no process would own the files of
the previous proxy. Files that are being written are not touched. Files of the same start are ordered by number, and
files from before this process count as older than its own: a clock that was set back must not make the newest the
oldest.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from eventlog.file_names import FileName, file_name

__all__ = ["Found", "delete_oldest", "finished_files", "oldest_first"]


class Found(NamedTuple):
    """A finished file, or a file that is kept as damaged."""

    path: Path
    name: FileName
    changed_ns: int
    size_bytes: int


def finished_files(directory: Path) -> list[Found]:
    """Return the event files of all proxies in `directory`; raise OSError."""
    found = []
    for text in os.listdir(directory):
        name = file_name(text)
        if name is not None:
            with suppress(FileNotFoundError):
                status = os.lstat(directory / text)
                found.append(Found(directory / text, name, status.st_mtime_ns, status.st_size))
    return found


def oldest_first(found: list[Found], boot_id: str, began_ns: int) -> list[Found]:
    """Sort files by age; those of the start `boot_id` count as changed at `began_ns` or later."""
    ages = {}
    later: dict[tuple[str, str], int] = {}
    for file in sorted(found, key=lambda file: file.name.number, reverse=True):
        start = file.name[:2]
        # A file is no younger than the next file of its start.
        changed_ns = later[start] = min(file.changed_ns, later.get(start, file.changed_ns))
        ages[file.path] = max(changed_ns, began_ns) if file.name.boot_id == boot_id else changed_ns
    return sorted(found, key=lambda file: (ages[file.path], file.name.boot_id == boot_id, file.name))


def delete_oldest(files: list[Found], max_total_bytes: int) -> int:
    """Delete files from the front until the total is small enough; return their number; raise OSError."""
    deleted = 0
    total = sum(file.size_bytes for file in files)
    for file in files:
        if total <= max_total_bytes:
            break
        with suppress(FileNotFoundError):  # another proxy deletes files as well
            file.path.unlink()
            deleted += 1
        total -= file.size_bytes
    return deleted
