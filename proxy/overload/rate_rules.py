"""The arithmetic of the adaptive throttle (pulsar-25239): natural rate, target rate, beginners. No clock.

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
# The natural rate of a beginner that used all of its rate grows so much in a cycle.
GROWTH: Final = 1.05
# A beginner may grow so far above the least rate where no topic is known, as after a restart under pressure.
MOST_GROWTH: Final = 16.0
# Rates are compared by powers of two, which bounds the memory of a middle.
_POWERS: Final = 64


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


class _Middle:
    """The median of rates, rounded down to a power of two."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * _POWERS

    def add(self, rate: float) -> None:
        if rate >= 1:
            self._counts[min(_POWERS - 1, int(rate).bit_length() - 1)] += 1

    def found(self) -> float:
        """Return the median; 0 if there are no rates."""
        left = (sum(self._counts) + 1) // 2
        for power, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return float(1 << power)
        return 0.0


class Beginners:
    """The natural rates, of bytes and of messages, of topics that nobody knows yet while there is pressure.

    Such a topic begins as the one in the middle of those that are known; the more begin at a time, the less each is
    given, so that a crowd of new names is no way around a limit. None begins below the rates that no topic is held
    below. A beginner that has no tokens left grows slowly, up to that middle. Each pass of all topics renews it.
    """

    __slots__ = ("_bytes", "_count", "_messages", "_middle", "_seen")

    def __init__(self) -> None:
        self._middle = (0.0, 0.0)
        # The beginners of the last pass, and those that came since; those of this pass.
        self._count = self._seen = 0
        self.begin_pass()

    def begin_pass(self) -> None:
        """Begin to look at all topics."""
        self._bytes, self._messages, self._seen = _Middle(), _Middle(), 0

    def known(self, natural_bytes: float, natural_messages: float) -> None:
        """Look at a topic whose natural rates are known."""
        self._bytes.add(natural_bytes)
        self._messages.add(natural_messages)

    def seen(self) -> None:
        """Look at a beginner."""
        self._seen += 1

    def end_pass(self) -> None:
        """End the pass: what was seen holds from now on."""
        self._middle, self._count = (self._bytes.found(), self._messages.found()), self._seen

    def begin(self, least: tuple[float, float]) -> tuple[float, float]:
        """Return the natural rates of one more topic, which gets less the more have begun."""
        self._count += 1
        return max(least[0], self._middle[0] / self._count), max(least[1], self._middle[1] / self._count)

    def grown(self, natural: tuple[float, float], least: tuple[float, float]) -> tuple[float, float]:
        """Return the natural rates of a beginner after a cycle in which it used all that it was given."""
        most = [max(middle, MOST_GROWTH * floor) for middle, floor in zip(self._middle, least, strict=True)]
        found = [max(rate, min(GROWTH * rate, bound)) for rate, bound in zip(natural, most, strict=True)]
        return found[0], found[1]
