"""Changes of a directory of tables that happen wholly or not at all: files added and files removed, over all tables.

Data is written under `_staging/` first, where no reader looks. A change is made by one atomic rename: that of its entry
in `_journal/`, which says what is to be moved in place and what is to go. Only then files move. Whoever comes next,
writer or reader, first carries out what the journal still holds, so that a crash between any two steps shows the state
before the entry or the state after it. A lock of the file system orders writers and the listings of readers; the kernel
gives it up with its process, so that a crash leaves none.

Rule: needs a directory with atomic renames and `flock`, as local disks and NFS have; object stores have neither.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

from pipeline.errors import ExitCode, PipelineError
from pipeline.lease import LOCK, PATIENCE_SECONDS, Clock, lock_of, this_process, try_lock

__all__ = ["NOTES", "Change", "Directory", "Staging", "Writer", "write_whole"]

STAGING: Final = "_staging"
JOURNAL: Final = "_journal"
NOTES: Final = "_notes"
HIDDEN: Final = ("_", ".")


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done, in paths relative to the directory; carried out twice it does no more than once."""

    id: str
    moves: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)


class Staging:
    """A place for files that nobody reads yet; it is gone with `discard`, or with the process that made it."""

    def __init__(self, root: Path, change_id: str) -> None:
        self._root = root
        self.path = root / STAGING / change_id
        # Held as long as the owner lives: what nobody holds is left over.
        self._owned = _own(self.path)

    def discard(self) -> None:
        """Delete it; again is no error. What a change is to move that is not carried out yet, stays for it."""
        self._owned.close()
        if not _entries(self._root):
            shutil.rmtree(self.path, ignore_errors=True)


class Writer:
    """The one who holds the lock; made by `Directory.exclusive`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self, table: str) -> list[Path]:
        """List the files of a table."""
        return _data_files(self._root / table)

    def note(self, name: str) -> int | None:
        """Give the number that a change left under this name."""
        path = self._root / NOTES / name
        return int(path.read_text()) if path.exists() else None

    def make(self, change: Change) -> None:
        """Carry a change out; from its entry in the journal on it happens, whatever becomes of this process."""
        for source, _ in change.moves:
            _sync(self._root / source)
        write_whole(self._root / JOURNAL / f"{change.id}.json", json.dumps(asdict(change)))
        _carry_out(self._root, change)


class Directory:
    """A directory of tables."""

    def __init__(
        self,
        root: Path,
        patience_seconds: float = PATIENCE_SECONDS,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root = root
        self._clock = Clock(patience_seconds, now=now, sleep=sleep)

    def stage(self, kind: str) -> Staging:
        """Make a place for the files of a change to come."""
        return Staging(self.root, f"{kind}-{uuid4().hex}")

    @contextmanager
    def exclusive(self) -> Iterator[Writer]:
        """Wait until nobody else writes, finish what a crash left, and be the writer; raises PipelineError."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._locked(fcntl.LOCK_EX):
            _finish(self.root)
            yield Writer(self.root)

    def files(self, table: str) -> list[Path]:
        """List the files of a table as they are between two changes; raises PipelineError."""
        if not self.root.is_dir():
            return []
        with self._locked(fcntl.LOCK_SH):
            if not _entries(self.root):
                return _data_files(self.root / table)
        with self.exclusive() as writer:
            return writer.files(table)

    def _locked(self, how: int) -> AbstractContextManager[None]:
        return lock_of(self.root, this_process(), how, self._clock)


def _own(place: Path) -> IO[str]:
    """Make a directory and lock it; whoever clears up may take it for left over until the lock is held."""
    while True:
        place.mkdir(parents=True, exist_ok=True)
        try:
            owned = (place / LOCK).open("w")
        except FileNotFoundError:
            continue
        fcntl.flock(owned, fcntl.LOCK_EX)
        if (place / LOCK).exists():
            return owned
        owned.close()


def _finish(root: Path) -> None:
    """Carry out what the journal holds, and clear away what dead processes staged or did not write to its end."""
    for entry in _entries(root):
        _carry_out(root, _read(entry))
    for unwritten in (root / JOURNAL).glob(".*"):
        unwritten.unlink()
    staged = root / STAGING
    for left in staged.iterdir() if staged.is_dir() else ():
        _clear(left)


def _clear(left: Path) -> None:
    lock = left / LOCK
    if not lock.exists():
        with suppress(OSError):
            left.rmdir()
        return
    with suppress(FileNotFoundError), lock.open() as owned:
        if try_lock(owned, fcntl.LOCK_EX):
            shutil.rmtree(left, ignore_errors=True)


def _entries(root: Path) -> list[Path]:
    # A hidden one was never written to its end, and so never happened.
    return sorted(path for path in (root / JOURNAL).glob("*.json") if not path.name.startswith(HIDDEN))


def _read(entry: Path) -> Change:
    found = json.loads(entry.read_text())
    moves = tuple((source, target) for source, target in found["moves"])
    return Change(found["id"], moves, tuple(found["removes"]), found["notes"])


def _carry_out(root: Path, change: Change) -> None:
    """Do what is not done yet, in an order that can be begun again anywhere; the entry goes last."""
    for source, target in change.moves:
        _move(root / source, root / target)
    for name in change.removes:
        (root / name).unlink(missing_ok=True)
    _remove_empty(root, change.removes)
    for name, number in change.notes.items():
        write_whole(root / NOTES / name, str(number))
    (root / JOURNAL / f"{change.id}.json").unlink()


def _move(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    elif not target.exists():
        raise PipelineError(f"{source} is gone, expected it to be moved to {target}", ExitCode.DATA_LOSS)


def _remove_empty(root: Path, removed: Sequence[str]) -> None:
    for directory in {root / parent for name in removed for parent in Path(name).parents[:-2]}:
        with_files = directory.is_dir() and any(path.is_file() for path in directory.rglob("*"))
        if directory.is_dir() and not with_files:
            shutil.rmtree(directory, ignore_errors=True)


def _data_files(table: Path) -> list[Path]:
    found = []
    for directory, below, names in os.walk(table):
        below[:] = [name for name in below if not name.startswith(HIDDEN)]
        found += [Path(directory, name) for name in names if name.endswith(".parquet") and not name.startswith(HIDDEN)]
    return sorted(found)


def write_whole(path: Path, text: str) -> None:
    """Have a file hold this text, on the disk, or be what it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text)
    _sync(hidden)
    hidden.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
