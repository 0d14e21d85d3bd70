"""How much of event files a directory keeps: the oldest go, whoever wrote them.

Rule: the bound is the directory's. Proxies get new names at each start (pods), and nobody would own what the last one
left. Files that are being written are not touched. Of one start the numbers tell the age, and what was there when this
process began is older than all it writes: a clock that was set back must not make the newest the oldest.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from eventlog.file_names import FileName, file_name

__all__ = ["Found", "delete_oldest", "finished_files", "oldest_first"]


class Found(NamedTuple):
    """A finished file, or one kept as damaged."""

    path: Path
    name: FileName
    changed_ns: int
    size_bytes: int


def finished_files(directory: Path) -> list[Found]:
    """Find the event files of all proxies in `directory`; raises OSError."""
    found = []
    for text in os.listdir(directory):
        name = file_name(text)
        if name is not None:
            with suppress(FileNotFoundError):
                status = os.lstat(directory / text)
                found.append(Found(directory / text, name, status.st_mtime_ns, status.st_size))
    return found


def oldest_first(found: list[Found], boot_id: str, began_ns: int) -> list[Found]:
    """Sort by age; files of the start `boot_id` are younger than `began_ns`, the change of any that it found."""
    ages = {}
    later: dict[tuple[str, str], int] = {}
    for file in sorted(found, key=lambda file: file.name.number, reverse=True):
        start = file.name[:2]
        # A file is no younger than the next of its start.
        changed_ns = later[start] = min(file.changed_ns, later.get(start, file.changed_ns))
        ages[file.path] = max(changed_ns, began_ns) if file.name.boot_id == boot_id else changed_ns
    return sorted(found, key=lambda file: (ages[file.path], file.name.boot_id == boot_id, file.name))


def delete_oldest(files: list[Found], max_total_bytes: int) -> int:
    """Delete from the front until the sum is small enough, and give the number of files deleted; raises OSError."""
    deleted = 0
    total = sum(file.size_bytes for file in files)
    for file in files:
        if total <= max_total_bytes:
            break
        with suppress(FileNotFoundError):  # another proxy keeps to the sum as well
            file.path.unlink()
            deleted += 1
        total -= file.size_bytes
    return deleted
