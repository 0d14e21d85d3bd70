"""Read memory that cannot be reclaimed: of this process's cgroup, of the process, or of the machine.

`memory.current` holds the page cache, so anonymous memory and sockets are counted instead (docs/overload.md). Each read
takes some 50 us, and up to a millisecond where the kernel has to add up memory.stat, so it is called in a thread.
"""

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.core.process_memory import (
    PAGE_BYTES,
    parse_cgroups,
    parse_limit,
    parse_status_field,
    read_text,
    return_free_pages,
)
from proxy.overload.samples import MemorySample

CGROUP_V2: Final = "cgroup v2"
CGROUP_V1: Final = "cgroup v1"
PROCESS: Final = "process"
MACHINE: Final = "machine"
# The controller, which is also the name of the tree below the mount point, and the file that has the limit.
_VERSIONS: Final = ((CGROUP_V2, "", "memory.max"), (CGROUP_V1, "memory", "memory.limit_in_bytes"))


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
        # The allocator also counts pages as free that it has given back, and that nobody may take off again.
        self._returned_bytes = 0
        self._has_group = False

    def read(self) -> MemorySample:
        """Return memory in use and its limit; raise MemoryUnreadable."""
        groups = parse_cgroups(read_text(self._files.process / "cgroup"))
        for source, controller, limit in _VERSIONS:
            sample = self._group(source, self._upwards(groups, controller), limit)
            if sample is not None:
                self._has_group = True
                break
        else:
            sample = self._without_group(groups)
        counted = self._counted_free()
        # Pages that were given back come back when they are used, and then are counted no more.
        self._returned_bytes = min(self._returned_bytes, counted)
        return sample._replace(free_bytes=counted - self._returned_bytes)

    def trim(self) -> None:
        """Return free pages of the allocator to the system."""
        return_free_pages()
        self._returned_bytes = self._counted_free()

    def _upwards(self, groups: Mapping[str, str], controller: str) -> list[Path]:
        """Return the directory of a group and all above it; none for a controller that does not know this process.

        Inside a container they may be absent but for the mount point, which is the container's group then.
        """
        if controller not in groups:
            return []
        root = self._files.cgroups / controller
        directory = root / groups[controller].lstrip("/")
        return [each for each in (directory, *directory.parents) if each.is_relative_to(root)]

    def _group(self, source: str, places: list[Path], name: str) -> MemorySample | None:
        """Return the memory of the group with the smallest limit; None without a limit."""
        limits = [(parse_limit(read_text(place / name)), number) for number, place in enumerate(places)]
        limit, number = min(((limit, number) for limit, number in limits if limit), default=(0, 0))
        if not limit:
            return None
        place = places[number]
        own = next((each for each in places if (each / "memory.stat").exists()), place)
        if self._is_sidecar and _is_shared(own):
            return self._process(limit)
        fields = parse_fields(read_text(place / "memory.stat"))
        used, sockets = fields.get("anon"), fields.get("sock", 0)
        if source == CGROUP_V1:
            used, sockets = fields.get("total_rss", fields.get("rss")), self._socket_bytes()
        if used is None:
            raise MemoryUnreadable(f"{place / 'memory.stat'}: got no number of anonymous memory")
        high = parse_fields(read_text(place / "memory.events")).get("high", 0)
        return MemorySample(source, used + sockets, limit, 0, self._stalls(place), high)

    def _without_group(self, groups: Mapping[str, str]) -> MemorySample:
        if self._has_group and not any(
            (place / limit).exists()
            for _, controller, limit in _VERSIONS
            for place in self._upwards(groups, controller)
        ):
            # A limit that was lifted has its files. Without them the machine's memory says nothing about the container.
            raise MemoryUnreadable(f"{self._files.cgroups}: the limit of the cgroup is gone")
        path = self._files.proc / "meminfo"
        text = read_text(path)
        total, available = parse_status_field(text, "MemTotal"), parse_status_field(text, "MemAvailable")
        if not total or available is None:
            raise MemoryUnreadable(f"{path}: got no MemTotal and MemAvailable")
        if self._is_sidecar:
            return self._process(total)
        return MemorySample(MACHINE, max(0, total - available), total, 0, self._stalls())

    def _process(self, limit: int) -> MemorySample:
        """Return the memory of this process that is not shared, and its sockets."""
        path = self._files.process / "statm"
        words = (read_text(path) or "").split()
        if len(words) < 3 or not (words[1].isdecimal() and words[2].isdecimal()):
            raise MemoryUnreadable(f"{path}: got no sizes")
        used = max(0, int(words[1]) - int(words[2])) * PAGE_BYTES + self._socket_bytes()
        # Stalls of the machine, or of a group, may be those of others.
        return MemorySample(PROCESS, used, limit)

    def _stalls(self, *groups: Path) -> float | None:
        """Return the kernel's stall information of a group, else of the machine; None where neither is there."""
        paths = [*(group / "memory.pressure" for group in groups), self._files.proc / "pressure/memory"]
        return next((found for path in paths if (found := stall_percent(read_text(path))) is not None), None)


def _is_shared(group: Path) -> bool:
    """Return whether a process other than this one, and the one that started it, is in a group."""
    ours = {str(os.getpid()), str(os.getppid()), "0"}
    return any(pid not in ours for pid in (read_text(group / "cgroup.procs") or "").split())


def parse_fields(text: str | None) -> dict[str, int]:
    """Return the lines `name number` of a file such as memory.stat or memory.events; other lines are passed over."""
    lines = (line.partition(" ") for line in (text or "").splitlines())
    return {name: int(number) for name, _, number in lines if number.strip().isdecimal()}


def stall_percent(text: str | None) -> float | None:
    """Return `some avg10` of a PSI file; None if the file is absent, empty or something else."""
    found = re.search(r"^some .*?\bavg10=(\d+(?:\.\d+)?)(?:\s|$)", text or "", re.MULTILINE)
    return None if found is None else min(100.0, float(found[1]))


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
