"""Queue of members by the second in which they expire (`maxConnectionAgeSeconds`).

The members of one second share a dictionary, so a member that leaves early leaves nothing in the queue. No clock, no
I/O.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class ExpiryQueue(Generic[T]):
    """Members by the second in which they expire."""

    def __init__(self) -> None:
        self._due: dict[int, dict[T, None]] = {}
        self._second_of: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._second_of)

    def add(self, member: T, at: float) -> None:
        """Add a member that expires at `at`, rounded up to a whole second."""
        second = int(at) + 1
        self._second_of[member] = second
        self._due.setdefault(second, {})[member] = None

    def remove(self, member: T) -> None:
        """Remove a member; a member that expired or was never added is ignored."""
        second = self._second_of.pop(member, None)
        if second is None:
            return
        same = self._due[second]
        del same[member]
        if not same:
            del self._due[second]

    def replace(self, old: T, new: T) -> None:
        """Make `new` expire in place of `old`; nothing happens if `old` is not in the queue."""
        second = self._second_of.get(old)
        if second is not None:
            self.remove(old)
            self._second_of[new] = second
            self._due.setdefault(second, {})[new] = None

    def pop_due(self, now: float) -> list[T]:
        """Remove and return the members that have expired by `now`."""
        found = [member for second, members in self._due.items() if second <= now for member in members]
        for member in found:
            self.remove(member)
        return found
