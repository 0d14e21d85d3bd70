"""Where a stream stands in each partition of a topic, and how far its next batch may go. Pure arithmetic.

A position says that everything up to and including an entry has been read. Entries are whole, so that a range between
two positions is the same whenever it is read. Rules that make lost ledgers visible:

- A position `(ledger, -1)` is only made of a ledger that has entries: a broker deletes an empty one when it closes it,
  which loses nothing. A partition in which nothing was ever seen stands at NOWHERE.
- A position moves on to the next ledger once its own is read to the end and the next has entries; until then its mark
  notes which ledger follows. So a ledger that was read may go, and if another one goes, events may have gone with it.
  A doubt is left, and counts as a loss: all was read and then trimmed, and the empty ledger that followed was
  replaced, by a restart of the broker, before anything was written to it.
- After a loss a partition is put to what is left of it, by a batch that reads nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
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


class Mark(NamedTuple):
    """A position, and the ledger that follows one that was read to its end."""

    position: Position
    follows: int = _UNKNOWN


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The content of a partition of the topic now.

    `ledgers` ascend by id; `end` is the last entry that was ever written, as far as the broker knows, NOWHERE if none
    was.
    """

    name: str
    ledgers: tuple[Ledger, ...]
    end: Position

    @property
    def beginning(self) -> Position:
        """Return the position before the first entry."""
        return next((Position(ledger.id, -1) for ledger in self.ledgers if ledger.entries), NOWHERE)

    def lost(self, mark: Mark) -> bool:
        """Return whether something that follows the mark may be gone."""
        if mark.position in (NOWHERE, self.end):
            return False
        return all(ledger.id not in (mark.position.ledger, mark.follows) for ledger in self.ledgers)

    def mark(self, position: Position) -> Mark:
        """Return the mark of a position of which nothing is lost."""
        of_it = (ledger for ledger in self.ledgers if ledger.id == position.ledger)
        read = position != NOWHERE and not any(ledger.after(position) for ledger in of_it)
        later = (ledger.id for ledger in self.ledgers if ledger.id > position.ledger)
        return Mark(position, next(later, _UNKNOWN) if read else _UNKNOWN)

    def entries_after(self, position: Position) -> int:
        """Count the entries after `position`."""
        return sum(ledger.after(position) for ledger in self.ledgers)

    def advanced(self, position: Position, count: int) -> Position:
        """Move `position` by at most `count` entries."""
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


# By the names of the partitions.
States = Mapping[str, PartitionState]
Marks = Mapping[str, Mark]


def encode(marks: Marks) -> dict[str, list[int]]:
    """Write an offset of Spark: sorted, because equal offsets must be equal texts."""
    return {name: [*mark.position, mark.follows] for name, mark in sorted(marks.items())}


def decode(offset: Mapping[str, list[int]]) -> dict[str, Mark]:
    """Read an offset of Spark."""
    return {name: Mark(Position(ledger, entry), follows) for name, (ledger, entry, follows) in offset.items()}


def next_marks(states: States, marks: Marks, max_entries: int) -> dict[str, Mark]:
    """Return where the next batch ends: `max_entries` on, divided by what each partition has unread.

    Each partition advances by one entry at least. One that is new, or that lost what follows its mark, is only put to
    its beginning: the batch after this one reads it, from a position that is written down. Whether a loss is allowed
    the caller has checked.
    """
    found = dict(marks)
    unread = {}
    for name, state in states.items():
        mark = marks.get(name, Mark(NOWHERE))
        if mark.position == NOWHERE or state.lost(mark):
            found[name] = state.mark(state.beginning)
        else:
            unread[name] = state.entries_after(mark.position)
    left, rest = max_entries, sum(unread.values())
    # The one entry of those that have little is taken from those that have more.
    for name, entries in sorted(unread.items(), key=itemgetter(1)):
        count = max(1, min(entries, left * entries // max(1, rest)))
        left, rest = max(0, left - min(count, entries)), rest - entries
        found[name] = states[name].mark(states[name].advanced(marks[name].position, count))
    return found


@dataclass(frozen=True, slots=True)
class Range:
    """The part of a partition that a task reads: after `start` up to `end`; each of `ledgers` must bring something."""

    name: str
    start: Position
    end: Position
    ledgers: tuple[int, ...]


def ranges(start: Marks, end: Marks, states: States) -> list[Range]:
    """List what is to be read between two offsets."""
    found = []
    for name, last in sorted(end.items()):
        if name in start:
            first = start[name].position
            # None where a partition was put to its beginning, or stands between the end of a ledger and the next.
            held = (ledger for ledger in states[name].ledgers if Position(ledger.id, 0) <= last.position)
            if ledgers := tuple(ledger.id for ledger in held if ledger.after(first)):
                found.append(Range(name, first, last.position, ledgers))
    return found
