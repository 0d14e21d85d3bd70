"""Own the files in which a kernel tells of a process and its groups, with the text that a test gives them."""

from collections.abc import Mapping
from pathlib import Path

from proxy.core.process_memory import MemoryPaths


def kernel_files(root: Path, files: Mapping[str, str]) -> MemoryPaths:
    """Write files of `proc` and `cgroup` below `root`; those of the process are in `proc/self`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemoryPaths(process=root / "proc/self", cgroups=root / "cgroup")
