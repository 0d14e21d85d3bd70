"""Own a memory cgroup (v1) with a limit that a test gives: real memory, and the kernel's real end of it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup/memory")
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
        fields = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(fields["rss"])

    def failures(self) -> int:
        """Return how often memory was at the limit."""
        return int((self.path / "memory.failcnt").read_text())


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group until the block ends; raises NoMemoryGroupError."""
    path = ROOT / f"pulsar-proxy-{os.getpid()}-{os.urandom(3).hex()}"
    try:
        path.mkdir()
    except OSError as error:
        raise NoMemoryGroupError(f"no memory cgroup (v1) can be made: {error.strerror}") from error
    try:
        try:
            (path / "memory.limit_in_bytes").write_text(f"{limit_bytes}\n")
        except OSError as error:
            raise NoMemoryGroupError(f"no limit for a memory cgroup: {error.strerror}") from error
        yield MemoryGroup(path)
    finally:
        path.rmdir()
