"""The arithmetic of the adaptive throttle (pulsar-25239): natural rate, target rate, shares. Pure functions.

`messages` and `bytes` a second are computed alike, each for itself. Check values are those of the pull request.
"""

from typing import Final

UP: Final = 0.30
DOWN: Final = 0.05
# A client that reconnects sends its whole queue again: what one cycle may teach, as a multiple of what is known.
MOST_TAUGHT: Final = 4.0
# No topic is held below these, whatever its natural rate: an idle topic's next burst is no offence.
LEAST_BYTES: Final = 65_536.0
LEAST_MESSAGES: Final = 100.0
# A sum has at most a thousand parts of this size, which bounds the work of `SharedCut`.
SMALLEST_SHARE: Final = 0.001
MOST_LARGE: Final = 1000
EXACT: Final = 1e-9


def learned(natural: float, measured: float, floor: float = 0.0) -> float:
    """Return the natural rate after a cycle: it rises by 0.30 and falls by 0.05 of the distance (A3)."""
    if natural > 0:
        measured = min(measured, max(MOST_TAUGHT * natural, floor))
    return natural + (UP if measured > natural else DOWN) * (measured - natural)


def ideal_rate(natural: float, factor: float, min_factor: float) -> float:
    """Return the rate that a pressure asks for: all of the natural rate at 0, `min_factor` of it at 1 (A2)."""
    return max(1.0, natural * (1.0 - factor * (1.0 - min_factor)))


def next_rate(last: float, ideal: float, natural: float, min_factor: float, max_change: float, floor: float) -> float:
    """Return the rate of the next cycle: at most `max_change` of the natural rate from the last, never below a floor.

    The last rate is the natural rate at the first cycle.
    """
    step = max_change * natural
    rate = min(max(ideal, last - step), last + step)
    return max(1.0, floor, min_factor * natural, rate)


class SharedCut:
    """The level to which topics are cut, so that all together give up what an equal cut would take.

    Topics below the level keep their rate: the topics that send most are slowed first, and none below the least
    factor. Topics with less than a thousandth of the sum are left alone, so that at most a thousand are compared.
    """

    __slots__ = ("_large", "_total")

    def __init__(self) -> None:
        self._total = 0.0
        self._large: list[float] = []

    def add(self, natural: float) -> None:
        """Add the natural rate of a topic."""
        self._total += natural
        # The sum only grows: a topic that is too small for a part of it is too small for the whole.
        if natural > 0 and natural >= self._total * SMALLEST_SHARE:
            self._large.append(natural)
            if len(self._large) > 2 * MOST_LARGE:
                self._drop_small()

    def _drop_small(self) -> None:
        self._large = [natural for natural in self._large if natural >= self._total * SMALLEST_SHARE]

    def level(self, factor: float, min_factor: float) -> float | None:
        """Return the level; None if the large topics cannot give up enough: then all are cut alike."""
        self._drop_small()
        wanted = self._total * factor * (1.0 - min_factor)
        if sum(self._large) * (1.0 - min_factor) < wanted * (1.0 - EXACT):
            return None
        # From the top down: a topic gives up more from its natural rate on, and no more from the least factor on.
        marks = [(natural, 1) for natural in self._large] + [(min_factor * natural, -1) for natural in self._large]
        marks.sort(reverse=True)
        cut, giving, level = 0.0, 0, marks[0][0] if marks else 0.0
        for mark, change in marks:
            more = giving * (level - mark)
            if cut + more >= wanted:
                return level - (wanted - cut) / giving if giving else level
            cut, giving, level = cut + more, giving + change, mark
        return level
