"""The proxy as a process whose memory signal a test sets: `python -m tests.pulsar.pressed_proxy DIRECTORY serve ...`.

The signal comes from files of a cgroup in DIRECTORY, all of whose memory counts as waiting towards brokers. It tests
what the throttles do about a signal, and nothing about memory; everything else is the proxy.
"""

import sys
from pathlib import Path
from typing import Final

from proxy.app import overload
from proxy.core.process_memory import MemoryPaths
from proxy.overload import samples
from proxy.overload.samples import OwnerBytes
from tests.support.proxies import served

# Far above what the allocator holds free, which is taken off.
_LIMIT: Final = 10**13


class Pressure:
    """The files of the cgroup."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "cgroup").write_text("0::/\n")
        (directory / "memory.max").write_text(f"{_LIMIT}\n")
        self.set(0.1)

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command line of the proxy under this pressure."""
        return (sys.executable, "-m", "tests.pulsar.pressed_proxy", str(self.directory))

    def set(self, ratio: float) -> None:
        """Use this part of the limit from now on."""
        newer = self.directory / "newer"
        newer.write_text(f"anon {int(ratio * _LIMIT)}\nsock 0\n")
        newer.replace(self.directory / "memory.stat")


def _run() -> int:
    directory = Path(sys.argv.pop(1))
    vars(overload)["SYSTEM_PATHS"] = MemoryPaths(directory, directory)
    producers = OwnerBytes(towards_brokers=1 << 60)
    samples.OwnerBytes = lambda **_: producers  # type: ignore[assignment,misc]
    return served.run()


if __name__ == "__main__":
    sys.exit(_run())
