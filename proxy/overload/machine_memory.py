"""Read memory that cannot be reclaimed: of this process's cgroup, of the process, or of the machine.

`memory.current` holds the page cache, so anonymous memory and sockets are counted instead (docs/overload.md). Each read
takes some 50 us, and up to a millisecond where the kernel has to add up memory.stat, so it is called in a thread.
"""

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from proxy.core.process_memory import (
    LIMIT_V1,
    PAGE_BYTES,
    SYSTEM_PATHS,
    MemoryPaths,
    memory_groups,
    parse_limit,
    parse_status_field,
    read_text,
    return_free_pages,
)
from proxy.core.threads import in_thread
from proxy.overload.samples import MemorySample

READ_SECONDS: Final = 2.0
# Files of the kernel that never answer hold so many threads and not one for each sample.
MOST_READS: Final = 4


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
        paths: MemoryPaths = SYSTEM_PATHS,
        counted_free: Callable[[], int] | None = None,
    ) -> None:
        self._paths = paths
        self._is_sidecar = is_sidecar
        self._socket_bytes = socket_bytes
        self._counted_free = allocator_free_bytes if counted_free is None else counted_free
        # The allocator also counts pages as free that it has given back, and that nobody may take off again.
        self._returned_bytes = 0
        self._has_group = False

    async def read(self) -> MemorySample:
        """Return what `look` does, from a thread; raise TimeoutError and NoThread, too."""
        return await in_thread(self.look, "overload", READ_SECONDS, MOST_READS)

    async def trim(self) -> None:
        """Return free pages of the allocator to the system, in a thread."""
        await in_thread(self.give_back, "overload", READ_SECONDS, MOST_READS)

    def look(self) -> MemorySample:
        """Return memory in use and its limit; raise ValueError, which names the file that cannot be read."""
        files = [(place / name, places) for name, places in memory_groups(self._paths) for place in places]
        limits = [(limit, at) for at, (file, _) in enumerate(files) if (limit := parse_limit(read_text(file)))]
        if limits:
            self._has_group = True
            limit, at = min(limits)
            sample = self._group(limit, *files[at])
        elif self._has_group and not any(file.exists() for file, _ in files):
            # A limit that was lifted has its files. Without them the machine's memory says nothing about the container.
            raise ValueError(f"{self._paths.cgroups}: the limit of the cgroup is gone")
        else:
            sample = self._machine()
        counted = self._counted_free()
        # Pages that were given back come back when they are used, and then are counted no more.
        self._returned_bytes = min(self._returned_bytes, counted)
        # No pause of producers frees what is free.
        return sample._replace(used_bytes=max(0, sample.used_bytes - (counted - self._returned_bytes)))

    def give_back(self) -> None:
        """Return free pages of the allocator to the system."""
        return_free_pages()
        self._returned_bytes = self._counted_free()

    def _group(self, limit: int, file: Path, places: Sequence[Path]) -> MemorySample:
        """Return the memory of the group whose `file` has the limit; `places` are this process's group and upwards."""
        place, is_v1 = file.parent, file.name == LIMIT_V1
        own = next((each for each in places if (each / "memory.stat").exists()), place)
        # Processes other than this one, and the one that started it.
        others = {*(read_text(own / "cgroup.procs") or "").split()} - {str(os.getpid()), str(os.getppid()), "0"}
        if self._is_sidecar and others:
            return self._process(limit)
        fields = parse_fields(read_text(place / "memory.stat"))
        used, sockets = fields.get("anon"), fields.get("sock", 0)
        if is_v1:
            used, sockets = fields.get("total_rss", fields.get("rss")), self._socket_bytes()
        if used is None:
            raise ValueError(f"{place / 'memory.stat'}: got no number of anonymous memory")
        high = parse_fields(read_text(place / "memory.events")).get("high", 0)
        return MemorySample("cgroup v1" if is_v1 else "cgroup v2", used + sockets, limit, self._stalls(place), high)

    def _machine(self) -> MemorySample:
        path = self._paths.process.parent / "meminfo"
        text = read_text(path)
        total, available = parse_status_field(text, "MemTotal"), parse_status_field(text, "MemAvailable")
        if not total or available is None:
            raise ValueError(f"{path}: got no MemTotal and MemAvailable")
        if self._is_sidecar:
            return self._process(total)
        return MemorySample("machine", max(0, total - available), total, self._stalls())

    def _process(self, limit: int) -> MemorySample:
        """Return the memory of this process that is not shared, and its sockets."""
        path = self._paths.process / "statm"
        words = (read_text(path) or "").split()
        if len(words) < 3 or not (words[1].isdecimal() and words[2].isdecimal()):
            raise ValueError(f"{path}: got no sizes")
        used = max(0, int(words[1]) - int(words[2])) * PAGE_BYTES + self._socket_bytes()
        # Stalls of the machine, or of a group, may be those of others.
        return MemorySample("process", used, limit)

    def _stalls(self, *groups: Path) -> float | None:
        """Return the kernel's stall information of a group, else of the machine; None where neither is there."""
        paths = [*(group / "memory.pressure" for group in groups), self._paths.process.parent / "pressure/memory"]
        return next((found for path in paths if (found := stall_percent(read_text(path))) is not None), None)


def parse_fields(text: str | None) -> dict[str, int]:
    """Return the lines `name number` of a file such as memory.stat or memory.events; other lines are passed over."""
    lines = (line.partition(" ") for line in (text or "").splitlines())
    return {name: int(number) for name, _, number in lines if number.strip().isdecimal()}


def stall_percent(text: str | None) -> float | None:
    """Return `some avg10` of a PSI file; None if the file is absent, empty or something else."""
    found = re.search(r"^some .*?\bavg10=(\d+(?:\.\d+)?)(?:\s|$)", text or "", re.MULTILINE)
    return None if found is None else min(100.0, float(found[1]))


class _Mallinfo2(ctypes.Structure):
    """The answer of glibc's mallinfo2; the ninth size, `fordblks`, is what all arenas hold free."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def allocator_free_bytes() -> int:
    """Return the bytes that glibc's allocator holds free; 0 with another C library, or glibc before 2.33."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Mallinfo2
    return int(mallinfo2().sizes[8])
