"""Owns the memory promise of docs/memory.md as arithmetic, and what the kernel says of the proxy's process."""

from pathlib import Path
from typing import Final

from proxy.core.process_memory import MemoryPaths, peak_resident_bytes, resident_bytes

MIB: Final = 1 << 20
_PER_CONNECTION: Final = 8192


def resident(pid: int) -> int:
    """Return the resident memory of a process now, bytes."""
    found = resident_bytes(_of(pid))
    assert found is not None, f"no memory figures of process {pid}"
    return found


def peak(pid: int) -> int:
    """Return the most resident memory that a process ever had, bytes: the kernel keeps it, so no peak is missed."""
    found = peak_resident_bytes(_of(pid))
    assert found is not None, f"no memory figures of process {pid}"
    return found


def promised_growth(limits_mib: int, connections: int, largest_answer: int) -> int:
    """Return how far above its idle memory a proxy may ever be, bytes; `limits_mib` is heap and direct together."""
    return int(1.15 * limits_mib * MIB) + _PER_CONNECTION * connections + 2 * largest_answer


def _of(pid: int) -> MemoryPaths:
    return MemoryPaths(process=Path(f"/proc/{pid}"))
