"""What the streams of a table have read of its files, so that a compaction leaves alone what one of them has not.

Rule: a stream counts from its note in the directory on (`pipeline.changes`): with it deleted there is no stream. Its
names of files are written after the rows that it made of them, so that a file is never taken for read too early.
They take about as much as the listing of the table's files that no compaction has merged.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pipeline.changes import NOTES, write_whole

__all__ = ["ReadFiles"]

SUFFIX: Final = ".read"


class ReadFiles:
    """The names of a table's files that streams of it have read; the caller holds the lock of the directory."""

    def __init__(self, root: Path, table: str) -> None:
        self._notes = root / NOTES
        self._table = table

    def begin(self, stream: str) -> None:
        """Have a stream that has read nothing yet; its note is for the caller to leave."""
        shutil.rmtree(self._place(stream), ignore_errors=True)
        self._place(stream).mkdir(parents=True)

    def add(self, stream: str, number: int, names: Iterable[str]) -> None:
        """Note what a batch of a stream has read; again is no error."""
        write_whole(self._place(stream) / str(number), "\n".join(sorted(names)))

    def has(self, stream: str, number: int) -> bool:
        """Say whether it is noted what this batch has read."""
        return (self._place(stream) / str(number)).exists()

    def unread(self, files: Sequence[Path]) -> set[Path]:
        """Give those of the files that a stream has still to read."""
        unread: set[Path] = set()
        for place in self._places():
            read = {name for batch in _batches(place) for name in batch.read_text().splitlines()}
            unread.update(path for path in files if path.name not in read)
        return unread

    def forget(self, files: Sequence[Path]) -> None:
        """Drop the batches of which no file is left; the last one is kept, as it may come again."""
        there = {path.name for path in files}
        for place in self._places():
            for batch in _batches(place)[:-1]:
                if there.isdisjoint(batch.read_text().splitlines()):
                    batch.unlink()

    def _place(self, stream: str) -> Path:
        return self._notes / f"{stream}{SUFFIX}" / self._table

    def _places(self) -> list[Path]:
        found = sorted(self._notes.glob(f"*{SUFFIX}/{self._table}"))
        return [place for place in found if (self._notes / place.parent.name.removesuffix(SUFFIX)).exists()]


def _batches(place: Path) -> list[Path]:
    # A hidden one was never written to its end.
    return sorted((path for path in place.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
