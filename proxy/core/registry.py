"""Members (clients, groups) by an id, so that an operator can name one of them, and a page can list them in steps.

An id is used once in the life of a process. A client keeps its id when another object takes its place: the arrival
becomes a client, the client a relay. Code that lists many members keeps ids between two steps, never the members: a
kept member would outlive the permits of its memory. No clock, no I/O.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


@dataclass(slots=True)
class Entry(Generic[M]):
    """A member, its id, and when it was added (seconds of the caller's clock)."""

    id: int
    member: M
    since: float


class Registry(Generic[M]):
    """Members by id, in the order in which they were added."""

    def __init__(self) -> None:
        self._last_id = 0
        self._entries: dict[int, Entry[M]] = {}
        self._entry_of: dict[M, Entry[M]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, member: M, since: float) -> None:
        """Add a member under the next id."""
        self._last_id += 1
        self._entries[self._last_id] = self._entry_of[member] = Entry(self._last_id, member, since)

    def replace(self, old: M, new: M) -> None:
        """Register `new` under the id of `old`; nothing happens if `old` is not registered."""
        entry = self._entry_of.pop(old, None)
        if entry is not None:
            entry.member = new
            self._entry_of[new] = entry

    def remove(self, member: M) -> Entry[M] | None:
        """Remove a member and return its entry; None if it is not registered."""
        entry = self._entry_of.pop(member, None)
        if entry is not None:
            del self._entries[entry.id]
        return entry

    def entry_of(self, member: M) -> Entry[M] | None:
        """Return the entry of a member; None if it is not registered."""
        return self._entry_of.get(member)

    def find(self, entry_id: int) -> Entry[M] | None:
        """Return the entry with this id; None if its member was removed, or the id was never used."""
        return self._entries.get(entry_id)

    @property
    def last_id(self) -> int:
        """The id that was used last; 0 if none was."""
        return self._last_id

    def ids(self, after: int = 0, most: int | None = None) -> list[int]:
        """Return the first `most` ids above `after` that are in use, ascending (None: all of them).

        The list is a copy, since members come and go. The call also walks all ids up to `after`, at 30 ns each.
        """
        return list(islice((entry_id for entry_id in self._entries if entry_id > after), most))
