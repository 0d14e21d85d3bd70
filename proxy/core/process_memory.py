"""Memory by the kernel: of this process, resident now and at its peak; the container's limit, the machine's memory.

Rule: parsing is pure, paths are arguments, and an absent or unreadable file is None: a machine without cgroups is no
fault. Covers cgroup v2, v1 and none. The callers decide what to do with the numbers.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# cgroup v1 writes "no limit" as the largest multiple of the page size; anything near it means the same.
_NO_LIMIT_V1 = 1 << 62
LIMIT_V1 = "memory.limit_in_bytes"
# A controller, which is also the name of its tree below the mount point, and the file that has the limit.
_LIMITS = (("", "memory.max"), ("memory", LIMIT_V1))


@dataclass(frozen=True, slots=True)
class MemoryPaths:
    """The files to read: `process` is a /proc/<pid> directory, `cgroups` the mount point of the cgroup trees."""

    process: Path = Path("/proc/self")
    cgroups: Path = Path("/sys/fs/cgroup")


SYSTEM_PATHS = MemoryPaths()


def resident_bytes(paths: MemoryPaths = SYSTEM_PATHS) -> int | None:
    """Return the resident set size in bytes."""
    return parse_statm(read_text(paths.process / "statm"), PAGE_BYTES)


def peak_resident_bytes(paths: MemoryPaths = SYSTEM_PATHS) -> int | None:
    """Return the largest resident set size since the process started, in bytes."""
    return parse_status_field(read_text(paths.process / "status"), "VmHWM")


def container_limit_bytes(paths: MemoryPaths = SYSTEM_PATHS) -> int | None:
    """Return the smallest memory limit of the process's cgroup and its ancestors, in bytes.

    Return None if there is no limit.
    """
    limits = (parse_limit(read_text(place / name)) for name, places in memory_groups(paths) for place in places)
    return min((limit for limit in limits if limit is not None), default=None)


def memory_groups(paths: MemoryPaths) -> list[tuple[str, list[Path]]]:
    """Return, for cgroup v2 and v1, the name of the file with a limit and the groups upwards, this process's first."""
    groups = parse_cgroups(read_text(paths.process / "cgroup"))
    return [
        (name, directories_upwards(paths.cgroups / controller, groups[controller]))
        for controller, name in _LIMITS
        if controller in groups
    ]


def machine_memory_bytes(paths: MemoryPaths = SYSTEM_PATHS) -> int | None:
    """Return MemTotal of /proc/meminfo in bytes, None if the file cannot be read."""
    return parse_status_field(read_text(paths.process.parent / "meminfo"), "MemTotal")


def directories_upwards(root: Path, group: str) -> list[Path]:
    """Return the directory of a group and all above it, up to the mount point.

    Inside a container the path in /proc/self/cgroup is often the host's path, which is absent here. The mount point,
    which is always the last, is then the container's group.
    """
    directory = root / group.lstrip("/")
    return [each for each in (directory, *directory.parents) if each.is_relative_to(root)]


def texts_upwards(root: Path, group: str, name: str) -> Iterator[str]:
    """Yield the contents of a file of a group and all its ancestors, where the file is there."""
    texts = (read_text(place / name) for place in directories_upwards(root, group))
    return (text for text in texts if text is not None)


def parse_statm(text: str | None, page_bytes: int) -> int | None:
    """Return the resident size in /proc/<pid>/statm, in bytes."""
    fields = (text or "").split()
    return int(fields[1]) * page_bytes if len(fields) > 1 and fields[1].isdecimal() else None


def parse_status_field(text: str | None, name: str) -> int | None:
    """Return a size that /proc/<pid>/status or /proc/meminfo has in kB, in bytes."""
    for line in (text or "").splitlines():
        field, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if field == name and unit == "kB" and number.isdecimal():
            return int(number) * 1024
    return None


def parse_cgroups(text: str | None) -> dict[str, str]:
    """Return the path of each controller in /proc/<pid>/cgroup; the name of cgroup v2 is ""."""
    groups = {}
    for line in (text or "").splitlines():
        _, separator, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if separator and second:
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def parse_limit(text: str | None) -> int | None:
    """Parse a limit file of either cgroup version, in bytes; "max" and v1's huge number are no limit."""
    value = (text or "").strip()
    return int(value) if value.isdecimal() and int(value) < _NO_LIMIT_V1 else None


def read_text(path: Path) -> str | None:
    """Return the contents of a file of the kernel, None if the file cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


def return_free_pages() -> None:
    """Return free pages of the heap to the system; only glibc can do this, and elsewhere nothing is done."""
    # Only a proxy that measures its memory calls this.
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
