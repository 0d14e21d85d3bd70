"""How often something happens a second, lately: counters looked at once a second."""

from collections import deque
from collections.abc import Mapping
from typing import Final

LOOKS: Final = 11  # ten seconds between the first and the last of them


class Rates:
    """Remember the last `LOOKS` states of a few counters."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque(maxlen=LOOKS)

    def tick(self, now: float, counts: Mapping[str, int]) -> None:
        """Look at the counters at `now` (seconds)."""
        self._seen.append((now, dict(counts)))

    def per_second(self) -> dict[str, float]:
        """Give the events a second of each counter between the first look and the last; nothing before the second."""
        if len(self._seen) < 2:
            return {}
        (since, first), (until, last) = self._seen[0], self._seen[-1]
        seconds = until - since
        return {name: (count - first.get(name, 0)) / seconds for name, count in last.items()} if seconds > 0 else {}
