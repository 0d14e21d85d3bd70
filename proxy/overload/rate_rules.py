"""The arithmetic of the adaptive throttle (pulsar-25239): natural rate, target rate, shares. Pure functions.

`messages` and `bytes` a second are computed alike, each for itself. Check values are those of the pull request.
"""

from collections.abc import Sequence
from typing import Final

UP: Final = 0.30
DOWN: Final = 0.05
# A client that reconnects sends its whole queue again: what one cycle may teach, as a multiple of what is known.
MOST_TAUGHT: Final = 4.0
# No topic is held below these, whatever its natural rate: an idle topic's next burst is no offence.
LEAST_BYTES: Final = 65_536.0
LEAST_MESSAGES: Final = 100.0
# A sum has at most a thousand parts of this size, which bounds the work of `shared_cut`.
SMALLEST_SHARE: Final = 0.001
HALVINGS: Final = 40
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


def shared_cut(naturals: Sequence[float], factor: float, min_factor: float) -> float | None:
    """Return the level to which topics are cut, so that all together give up what an equal cut would take.

    Topics below the level keep their rate: who sends most is slowed first, and nobody below `min_factor`. Topics with
    less than a thousandth of the sum are left alone; None if the others cannot give up enough: then all are cut alike.
    """
    total = sum(naturals)
    wanted = total * factor * (1.0 - min_factor)
    large = [natural for natural in naturals if natural >= total * SMALLEST_SHARE]
    if sum(large) * (1.0 - min_factor) < wanted * (1.0 - EXACT):
        return None
    low, high = 0.0, max(large, default=0.0)
    for _ in range(HALVINGS):
        level = (low + high) / 2
        cut = sum(natural - max(min(natural, level), min_factor * natural) for natural in large)
        low, high = (low, level) if cut < wanted else (level, high)
    return high
