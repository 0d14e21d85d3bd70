"""The last minutes of a proxy, a sample a second, kept in the process for the page for people.

Rule: the memory is bounded by `KEPT`, and a sample takes some 0.1 ms: only numbers that are kept anyway are read.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

# Five minutes.
KEPT: Final = 300


class Minutes:
    """Keeps the last `KEPT` samples of each series: of counters the growth a second, of other numbers the value."""

    def __init__(self, counters: Callable[[], Mapping[str, float]], gauges: Callable[[], Mapping[str, float]]) -> None:
        self._counters = counters
        self._gauges = gauges
        self._before: tuple[float, Mapping[str, float]] | None = None
        self._series: dict[str, deque[float]] = {}

    def tick(self, now: float) -> None:
        """Take a sample at `now`, seconds; the first has no rates."""
        counts, before = self._counters(), self._before
        self._before = now, counts
        if before is None or now <= before[0]:
            return
        seconds, former = now - before[0], before[1]
        for name, count in counts.items():
            self._add(name, (count - former.get(name, 0.0)) / seconds)
        for name, value in self._gauges().items():
            self._add(name, value)

    def shown(self) -> Mapping[str, list[float]]:
        """Return each series, the oldest sample first; a value that is not a number is 0."""
        return {name: [round(value, 2) if value == value else 0.0 for value in kept] for name, kept in self._items()}

    def _items(self) -> list[tuple[str, deque[float]]]:
        return list(self._series.items())

    def _add(self, name: str, value: float) -> None:
        kept = self._series.get(name)
        if kept is None:
            kept = self._series[name] = deque(maxlen=KEPT)
        kept.append(value)
