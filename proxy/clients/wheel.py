"""A timer wheel without a clock: each member has its turn once in a period, and members are spread over the period."""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


class Wheel(Generic[M]):
    """Timer wheel: each member is returned once in `period` calls of `turn`."""

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
