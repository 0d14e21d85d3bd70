"""Know whose age is reached: who is added with a moment is due at it, a second's grain (maxConnectionAgeSeconds).

Whole seconds share one place, so that a member that leaves before its time costs nothing any more. No clock, no I/O.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class ExpiryQueue(Generic[T]):
    """Members by the second in which they are due."""

    def __init__(self) -> None:
        self._due: dict[int, dict[T, None]] = {}
        self._second_of: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._second_of)

    def add(self, member: T, at: float) -> None:
        """Have `member` be due at `at`."""
        second = int(at) + 1
        self._second_of[member] = second
        self._due.setdefault(second, {})[member] = None

    def remove(self, member: T) -> None:
        """Forget `member`; nothing happens if it is not known, or was due."""
        second = self._second_of.pop(member, None)
        if second is None:
            return
        same = self._due[second]
        del same[member]
        if not same:
            del self._due[second]

    def replace(self, old: T, new: T) -> None:
        """Let `new` take the place of `old`, if it has one."""
        second = self._second_of.get(old)
        if second is not None:
            self.remove(old)
            self._second_of[new] = second
            self._due.setdefault(second, {})[new] = None

    def take_due(self, now: float) -> list[T]:
        """Give all that are due, once."""
        found = [member for second, members in self._due.items() if second <= now for member in members]
        for member in found:
            self.remove(member)
        return found
