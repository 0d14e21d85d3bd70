"""Own a memory cgroup with a limit that a test gives: real memory, and the kernel's real end of it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
# The first version has a hierarchy for each kind of limit, the second has one for all.
FIRST: Final = ROOT / "memory"
# Moves itself into the group before it becomes the command: memory is charged where it is first used.
_ENTER: Final = 'echo $$ > "$0" && exec "$@"'


class NoMemoryGroupError(Exception):
    """Say in one line why this machine lets nobody make a memory cgroup."""


class MemoryGroup:
    """A group and its limit."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command line that runs `command` in the group."""
        return ("/bin/sh", "-c", _ENTER, str(self.path / "cgroup.procs"), *command)

    def used_bytes(self) -> int:
        """Return the anonymous memory of the group."""
        return self._field("memory.stat", "rss" if self._is_first else "anon")

    def failures(self) -> int:
        """Return how often memory was at the limit."""
        if self._is_first:
            return int((self.path / "memory.failcnt").read_text())
        return self._field("memory.events", "max")

    @property
    def _is_first(self) -> bool:
        return self.path.parent == FIRST

    def _field(self, file: str, name: str) -> int:
        return int(dict(line.split() for line in (self.path / file).read_text().splitlines())[name])


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group until the block ends; raises NoMemoryGroupError."""
    root, limit = (FIRST, "memory.limit_in_bytes") if FIRST.is_dir() else (ROOT, "memory.max")
    path = root / f"pulsar-proxy-{os.getpid()}-{os.urandom(3).hex()}"
    try:
        path.mkdir()
    except OSError as error:
        raise NoMemoryGroupError(f"no memory cgroup can be made: {error.strerror}") from error
    try:
        try:
            (path / limit).write_text(f"{limit_bytes}\n")
        except OSError as error:
            raise NoMemoryGroupError(f"no limit for a memory cgroup: {error.strerror}") from error
        yield MemoryGroup(path)
    finally:
        path.rmdir()
