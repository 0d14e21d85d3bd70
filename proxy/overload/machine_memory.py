"""Read the memory of this process's cgroup, or of the machine, and the allocator's free bytes; the thin reader.

Rule: parsing is `memory_use.py`'s; paths are arguments. Each read takes some 50 us, and up to a millisecond where the
kernel has to add up memory.stat, so `OverloadControl` reads in a thread.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.core.process_memory import PAGE_BYTES, parse_cgroups, parse_limit, read_text, return_free_pages
from proxy.overload.memory_use import (
    AllocatorBook,
    machine_bytes,
    parse_fields,
    process_bytes,
    stall_percent,
    v1_bytes,
    v2_bytes,
)
from proxy.overload.samples import MemorySample

CGROUP_V2: Final = "cgroup v2"
CGROUP_V1: Final = "cgroup v1"
PROCESS: Final = "process"
MACHINE: Final = "machine"


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """The directories of the kernel's files: this process, all of /proc, and the mount point of cgroups."""

    process: Path = Path("/proc/self")
    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")


class MemoryUnreadable(ValueError):
    """The memory in use cannot be read; the text says which file is missing."""


class MachineMemory:
    """Reads memory in use against the smallest limit upwards: cgroup v2, v1, else this process or the machine.

    `is_sidecar`: a cgroup that other processes share says nothing about this one, and neither does the machine.
    `socket_bytes` returns the kernel memory of the relays' sockets, which cgroup v1 charges nowhere.
    """

    def __init__(
        self,
        *,
        is_sidecar: bool,
        socket_bytes: Callable[[], int],
        files: MemoryFiles = MemoryFiles(),
        counted_free: Callable[[], int] | None = None,
    ) -> None:
        self._files = files
        self._is_sidecar = is_sidecar
        self._socket_bytes = socket_bytes
        self._counted_free = allocator_free_bytes if counted_free is None else counted_free
        self._book = AllocatorBook()
        self._has_group = False

    def read(self) -> MemorySample:
        """Return memory in use and its limit; raise MemoryUnreadable."""
        groups = parse_cgroups(read_text(self._files.process / "cgroup"))
        sample = self._v2(groups.get("")) or self._v1(groups.get("memory"))
        if sample is not None:
            self._has_group = True
        elif self._has_group and not self._limit_files(groups):
            # The machine's memory says nothing about the container whose files are gone.
            raise MemoryUnreadable(f"{self._files.cgroups}: the limit of the cgroup is gone")
        else:
            sample = self._without_group()
        return sample._replace(free_bytes=self._book.free_bytes(self._counted_free()))

    def _limit_files(self, groups: Mapping[str, str]) -> bool:
        """Return whether any limit can still be read: one that was lifted can."""
        found = [each / "memory.max" for each in _upwards(self._files.cgroups, groups.get("", ""))]
        root = self._files.cgroups / "memory"
        found += [each / "memory.limit_in_bytes" for each in _upwards(root, groups.get("memory", ""))]
        return any(read_text(path) is not None for path in found)

    def trim(self) -> None:
        """Return free pages of the allocator to the system."""
        return_free_pages()
        self._book.trimmed(self._counted_free())

    def _v2(self, group: str | None) -> MemorySample | None:
        if group is None:
            return None
        limited = _smallest(_upwards(self._files.cgroups, group), "memory.max")
        if limited is None:
            return None
        place, limit = limited
        own = next((each for each in _upwards(self._files.cgroups, group) if (each / "memory.stat").exists()), place)
        if self._is_sidecar and self._is_shared(own):
            return self._process(limit)
        used = v2_bytes(read_text(place / "memory.stat"))
        if used is None:
            raise MemoryUnreadable(f"{place / 'memory.stat'}: got no number of anonymous memory")
        high = parse_fields(read_text(place / "memory.events")).get("high", 0)
        return MemorySample(CGROUP_V2, used, limit, 0, self._stalls(place), high)

    def _v1(self, group: str | None) -> MemorySample | None:
        if group is None:
            return None
        root = self._files.cgroups / "memory"
        limited = _smallest(_upwards(root, group), "memory.limit_in_bytes")
        if limited is None:
            return None
        place, limit = limited
        if self._is_sidecar and self._is_shared(place):
            return self._process(limit)
        used = v1_bytes(read_text(place / "memory.stat"), self._socket_bytes())
        if used is None:
            raise MemoryUnreadable(f"{place / 'memory.stat'}: got no number of anonymous memory")
        return MemorySample(CGROUP_V1, used, limit, 0, self._stalls(None))

    def _without_group(self) -> MemorySample:
        found = machine_bytes(read_text(self._files.proc / "meminfo"))
        if found is None:
            raise MemoryUnreadable(f"{self._files.proc / 'meminfo'}: got no MemTotal and MemAvailable")
        used, total = found
        if self._is_sidecar:
            return self._process(total)
        return MemorySample(MACHINE, used, total, 0, self._stalls(None))

    def _process(self, limit: int) -> MemorySample:
        used = process_bytes(read_text(self._files.process / "statm"), PAGE_BYTES, self._socket_bytes())
        if used is None:
            raise MemoryUnreadable(f"{self._files.process / 'statm'}: got no sizes")
        # Stalls of the machine, or of a group, may be those of others.
        return MemorySample(PROCESS, used, limit)

    def _stalls(self, group: Path | None) -> float | None:
        """Return the kernel's stall information of a group, else of the machine; None where neither is there."""
        found = None if group is None else stall_percent(read_text(group / "memory.pressure"))
        return stall_percent(read_text(self._files.proc / "pressure/memory")) if found is None else found

    def _is_shared(self, group: Path) -> bool:
        """Return whether a process other than this one, and the one that started it, is in a group."""
        ours = {str(os.getpid()), str(os.getppid()), "0"}
        return any(pid not in ours for pid in (read_text(group / "cgroup.procs") or "").split())


def _upwards(root: Path, group: str) -> Iterator[Path]:
    """Yield the directory of a group and all above it; the mount point is the container's group if they are absent."""
    directory = root / group.lstrip("/")
    for place in (directory, *directory.parents):
        yield place
        if place == root:
            break


def _smallest(places: Iterator[Path], name: str) -> tuple[Path, int] | None:
    """Return the group with the smallest limit, and that limit; None without one."""
    limits = ((place, parse_limit(read_text(place / name))) for place in places)
    found = [(limit, number, place) for number, (place, limit) in enumerate(limits) if limit]
    return (min(found)[2], min(found)[0]) if found else None


class _Mallinfo2(ctypes.Structure):
    """The answer of glibc's mallinfo2, ten sizes; `fordblks` is what all arenas hold free."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def allocator_free_bytes() -> int:
    """Return the bytes that glibc's allocator holds free; 0 with another C library, or glibc before 2.33."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Mallinfo2
    return int(mallinfo2().fordblks)
