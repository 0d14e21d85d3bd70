"""The base of the image: packages of Debian of one moment, so that two builds of one commit have the same.

Rule: a build says which packages it takes: those of the moment, or those of today where that is allowed. The choice is
in the name of the base, so neither is taken for the other.
"""

import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from typing import Final

SUITE: Final = "trixie"
# The Python version of the suite, for which wheels are fetched.
SUITE_PYTHON: Final = "3.13"
# Changed by hand, no workflow does it: the later, the more faults of Debian's packages are mended.
MOMENT: Final = "20261101T000000Z"
# The archive of Debian keeps the packages of each day.
ARCHIVE: Final = f"http://snapshot.debian.org/archive/debian/{MOMENT}"
ARCHIVE_SECONDS: Final = 15.0
SOURCES: Final = ("snapshot", "today", "either")


class NoSnapshot(Exception):
    """The archive cannot be reached, and nothing else was allowed; the text says what would allow it."""


@dataclass(frozen=True, slots=True)
class Base:
    """Where debootstrap gets packages: a mirror, or None for its own; and of which moment they are."""

    moment: str
    mirror: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the image in the store."""
        return f"localhost/pulsar-proxy-base:{SUITE}-{self.moment.lower()}"

    @property
    def arguments(self) -> list[str]:
        """Return the last arguments of debootstrap."""
        return [] if self.mirror is None else [self.mirror]


SNAPSHOT: Final = Base(MOMENT, ARCHIVE)


def base_from(source: str, archive: str = ARCHIVE) -> Base:
    """Return the base for a word of SOURCES; raises NoSnapshot."""
    if source == "today":
        return Base("today", _mirror())
    problem = _problem_with(f"{archive}/dists/{SUITE}/InRelease")
    if problem is None:
        return SNAPSHOT
    if source == "snapshot":
        raise NoSnapshot(f"{archive}: {problem}; --base today takes the packages of today instead")
    return Base("today", _mirror())


def _problem_with(url: str) -> str | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=ARCHIVE_SECONDS):
            return None
    except OSError as error:
        return str(error)


def _mirror() -> str | None:
    # The mirror from which apt gets the suite on this machine; without apt, debootstrap uses its default mirror.
    if shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.splitlines()
    found = [line.split() for line in lines]
    return next((words[1] for words in found if len(words) == 2 and words[0] == SUITE), None)
