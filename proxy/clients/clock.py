"""Whose turn it is at a second: of all once in a period (`Wheel`), of each once when it expires (`ExpiryQueue`).

No clock, no I/O.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


class Wheel(Generic[M]):
    """Timer wheel: each member is returned once in `period` calls of `turn`; members are spread over the period."""

    def __init__(self, period: int) -> None:
        self._spokes: list[dict[M, None]] = [{} for _ in range(max(1, period))]
        self._spoke_of: dict[M, int] = {}
        self._next = 0
        self._now = 0

    def __len__(self) -> int:
        return len(self._spoke_of)

    def __iter__(self) -> Iterator[M]:
        return iter(self._spoke_of)

    def __contains__(self, session: Hashable) -> bool:
        return session in self._spoke_of

    def add(self, session: M) -> None:
        self._next = (self._next + 1) % len(self._spokes)
        self._spokes[self._next][session] = None
        self._spoke_of[session] = self._next

    def remove(self, session: M) -> None:
        spoke = self._spoke_of.pop(session, None)
        if spoke is not None:
            del self._spokes[spoke][session]

    def resized(self, period: int) -> "Wheel[M]":
        """Return a wheel of another period with the same members, in their order."""
        if max(1, period) == len(self._spokes):
            return self
        wheel: Wheel[M] = Wheel(period)
        for session in self._spoke_of:
            wheel.add(session)
        return wheel

    def turn(self) -> list[M]:
        self._now = (self._now + 1) % len(self._spokes)
        return list(self._spokes[self._now])


class ExpiryQueue(Generic[M]):
    """Members by the second in which they expire (`maxConnectionAgeSeconds`).

    The members of one second share a dictionary, so a member that leaves early leaves nothing in the queue.
    """

    def __init__(self) -> None:
        self._due: dict[int, dict[M, None]] = {}
        self._second_of: dict[M, int] = {}

    def add(self, member: M, at: float) -> None:
        """Add a member that expires at `at`, rounded up to a whole second."""
        second = int(at) + 1
        self._second_of[member] = second
        self._due.setdefault(second, {})[member] = None

    def remove(self, member: M) -> None:
        """Remove a member; a member that expired or was never added is ignored."""
        second = self._second_of.pop(member, None)
        if second is None:
            return
        same = self._due[second]
        del same[member]
        if not same:
            del self._due[second]

    def replace(self, old: M, new: M) -> None:
        """Make `new` expire in place of `old`; nothing happens if `old` is not in the queue."""
        second = self._second_of.get(old)
        if second is not None:
            self.remove(old)
            self._second_of[new] = second
            self._due.setdefault(second, {})[new] = None

    def pop_due(self, now: float) -> list[M]:
        """Remove and return the members that have expired by `now`."""
        found = [member for second, members in self._due.items() if second <= now for member in members]
        for member in found:
            self.remove(member)
        return found
