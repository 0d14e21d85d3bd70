"""Number those who come and go (clients, groups), so that an operator can name one, and look at all of them in steps.

A number is given once in the life of a process, and stays with a client that becomes another object (an arrival a
client, a client a relay). Whoever looks at many keeps numbers between two steps, never members: they would outlive
their memory's permits. No clock, no I/O.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


@dataclass(slots=True)
class Entry(Generic[M]):
    """One member: its number, what it is now, and since when it is here (seconds of the caller's clock)."""

    number: int
    member: M
    since: float


class Registry(Generic[M]):
    """Members by number, in the order in which they came."""

    def __init__(self) -> None:
        self._last = 0
        self._entries: dict[int, Entry[M]] = {}
        self._of: dict[M, Entry[M]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, member: M, since: float) -> None:
        """Give `member` the next number."""
        self._last += 1
        self._entries[self._last] = self._of[member] = Entry(self._last, member, since)

    def replace(self, old: M, new: M) -> None:
        """Let `new` have the number of `old`, if that has one."""
        entry = self._of.pop(old, None)
        if entry is not None:
            entry.member = new
            self._of[new] = entry

    def remove(self, member: M) -> None:
        """Forget `member`; nothing happens if it is not known."""
        entry = self._of.pop(member, None)
        if entry is not None:
            del self._entries[entry.number]

    def find(self, number: int) -> Entry[M] | None:
        """Give who has `number`; None if it has left, or if nobody ever had it."""
        return self._entries.get(number)

    @property
    def last(self) -> int:
        """Give the number that was given last; 0 if none was."""
        return self._last

    def numbers(self, after: int = 0, most: int | None = None) -> list[int]:
        """Give the first `most` numbers above `after` that are in use, ascending (None: all of them).

        A list of its own, since members come and go. It looks at all below `after`, at 30 ns each.
        """
        return list(islice((number for number in self._entries if number > after), most))
