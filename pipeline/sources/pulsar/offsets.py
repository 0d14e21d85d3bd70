"""Where a stream stands in each partition of a topic, and how far its next batch may go. Pure arithmetic.

A position says that everything up to and including an entry has been read. Entries are whole, so that a range between
two positions is the same whenever it is read. Rules that make lost ledgers visible:

- A position `(ledger, -1)` is only made of a ledger that has entries: a broker deletes an empty one when it closes it,
  which loses nothing. A partition in which nothing was ever seen stands at NOWHERE.
- A position moves on to the next ledger once its own is read to the end and the next has entries; until then its mark
  notes which ledger follows. So a ledger that was read may go, and if another one goes, events may have gone with it.
  A doubt is left, and counts as a loss: all was read and then trimmed, and the empty ledger that followed was
  replaced, by a restart of the broker, before anything was written to it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple


class Position(NamedTuple):
    """Everything up to and including this entry has been read; entry -1: nothing of the ledger."""

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


NOWHERE: Final = Position(-1, -1)
_UNKNOWN: Final = -1


class Ledger(NamedTuple):
    """A ledger of a partition and how many entries of it can be read."""

    id: int
    entries: int

    def after(self, position: Position) -> int:
        """Count its entries after a position."""
        if self.id == position.ledger:
            return max(0, self.entries - 1 - position.entry)
        return self.entries if self.id > position.ledger else 0


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The content of a partition of the topic now.

    `index` is -1 for a topic without partitions, `ledgers` ascending by id, or None if nobody could be asked for them;
    `end` is the last entry that was ever written, as far as the broker knows, NOWHERE if none was.
    """

    name: str
    index: int
    ledgers: tuple[Ledger, ...] | None
    end: Position

    @property
    def beginning(self) -> Position:
        """Return the position before the first entry."""
        return next((Position(ledger.id, -1) for ledger in self.ledgers or () if ledger.entries), NOWHERE)

    def lost(self, mark: "Mark") -> bool:
        """Return whether something that follows the mark may be gone."""
        if self.ledgers is None or mark.position in (NOWHERE, self.end):
            return False
        return all(ledger.id not in (mark.position.ledger, mark.follows) for ledger in self.ledgers)

    def mark(self, position: Position, gaps: int = 0) -> "Mark":
        """Return the mark of a position of which nothing is lost."""
        of_it = (ledger for ledger in self.ledgers or () if ledger.id == position.ledger)
        read = position != NOWHERE and not any(ledger.after(position) for ledger in of_it)
        later = (ledger.id for ledger in self.ledgers or () if ledger.id > position.ledger)
        return Mark(position, gaps, next(later, _UNKNOWN) if read else _UNKNOWN)

    def before(self, position: Position) -> Position:
        """Return the position from which `position` is the next entry, if there is one or will be."""
        if position.entry > 0:
            return Position(position.ledger, position.entry - 1)
        filled = any(ledger.id == position.ledger and ledger.entries for ledger in self.ledgers or ())
        return Position(position.ledger, -1) if filled else self.end

    def entries_after(self, position: Position) -> int:
        """Count the entries after `position`."""
        return sum(ledger.after(position) for ledger in self.ledgers or ())

    def advanced(self, position: Position, count: int) -> Position:
        """Move `position` by at most `count` entries."""
        if self.ledgers is None:
            return max(position, self.end)
        for ledger in self.ledgers:
            unread = ledger.after(position)
            if not unread:
                continue
            if count < unread:
                last = ledger.entries - unread - 1 + count
                return Position(ledger.id, last) if count or ledger.id != position.ledger else position
            position = Position(ledger.id, ledger.entries - 1)
            count -= unread
        return position

    def unread_entry(self, position: Position, number: int) -> Position:
        """Return the entry that is the `number`-th after `position`, counted from 1; there must be so many."""
        before = self.advanced(position, number - 1)
        return Position(before.ledger, before.entry + 1)


class Mark(NamedTuple):
    """A position, how many gaps were met on the way to it, and the ledger that follows one that was read to its end."""

    position: Position
    gaps: int = 0
    follows: int = -1


# By the names of the partitions.
States = Mapping[str, PartitionState]
Marks = Mapping[str, Mark]


def encode(marks: Marks) -> dict[str, list[int]]:
    """Write an offset of Spark: sorted, because equal offsets must be equal texts."""
    return {name: _words(mark) for name, mark in sorted(marks.items())}


def _words(mark: Mark) -> list[int]:
    words = [*mark.position, mark.gaps, mark.follows]
    return words if mark.follows != _UNKNOWN else words[: 3 if mark.gaps else 2]


def decode(offset: Mapping[str, list[int]] | str) -> dict[str, Mark]:
    """Read an offset of Spark, also as the text that Spark reports."""
    given = json.loads(offset) if isinstance(offset, str) else offset
    return {name: Mark(Position(*words[:2]), *words[2:]) for name, words in given.items()}


def next_mark(state: PartitionState, mark: Mark | None, limit: int | None) -> Mark:
    """Return the mark where the next batch ends, at most `limit` entries on (None: no bound).

    A partition that is new, or whose ledger is gone, is only put to its beginning: the batch after this one reads it,
    from a position that is written down. Whether a gap is allowed the caller has checked.
    """
    if mark is None or (mark.position == NOWHERE and state.ledgers is not None):
        return state.mark(state.beginning, mark.gaps if mark else 0)
    if state.lost(mark):
        return state.mark(state.beginning, mark.gaps + 1)
    count = state.entries_after(mark.position) if limit is None else limit
    return state.mark(state.advanced(mark.position, count), mark.gaps)


def entry_limits(unread: Mapping[str, int], rows_per_entry: Mapping[str, float], max_rows: int) -> dict[str, int]:
    """Divide `max_rows` between partitions by what each has unread; returns entries, at least 1 where there are any."""
    rows = sum(entries * rows_per_entry[name] for name, entries in unread.items())
    if rows <= max_rows:
        return dict(unread)
    return {name: min(entries, max(1, int(max_rows * entries / rows))) for name, entries in unread.items()}


@dataclass(frozen=True, slots=True)
class Range:
    """The part of a partition that a task reads: after `start` up to `end`; each of `ledgers` must bring something."""

    name: str
    index: int
    start: Position
    end: Position
    ledgers: tuple[int, ...]


def ranges(start: Marks, end: Marks, states: States) -> list[Range]:
    """List what is to be read between two offsets."""
    found = []
    for name, (last, gaps, _) in sorted(end.items()):
        first = start.get(name)
        # To be put to a beginning, or over a gap, is to read nothing; neither is there anything between the end of a
        # ledger that was read and the next.
        if first is not None and first.gaps == gaps and first.position < last:
            state = states[name]
            held = (ledger for ledger in state.ledgers or () if Position(ledger.id, 0) <= last)
            ledgers = tuple(ledger.id for ledger in held if ledger.after(first.position))
            if ledgers or state.ledgers is None:
                found.append(Range(name, state.index, first.position, last, ledgers))
    return found
