"""Rates of the last ten seconds, from counters read once a second."""

from collections import deque
from collections.abc import Mapping
from typing import Final

READINGS: Final = 11  # ten seconds between the first and the last


class Rates:
    """Keeps the last `READINGS` values of some counters."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, float]]] = deque(maxlen=READINGS)

    def tick(self, now: float, counts: Mapping[str, float]) -> None:
        """Add a reading of the counters at `now`, seconds."""
        self._seen.append((now, dict(counts)))

    def per_second(self) -> dict[str, float]:
        """Return the rate of each counter between the first reading and the last; empty before the second reading."""
        if len(self._seen) < 2:
            return {}
        (since, first), (until, last) = self._seen[0], self._seen[-1]
        seconds = until - since
        return {name: (count - first.get(name, 0)) / seconds for name, count in last.items()} if seconds > 0 else {}
