"""The rules of the proxy's two throttles for memory, at one sample a second. Pure; no pyspark here.

Rule: what a topic may send is a share of its natural rate, and the floors of the proxy (64 KiB and 100 messages a
second) are left out. The values are the defaults of the proxy's keys; a test holds them equal, and runs both
implementations on the same samples.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from pipeline.core.errors import PipelineError

# overloadMemory{High,Low}Watermark and adaptivePublisherThrottlingMemory{High,Low}WatermarkPct.
MIN_RATE_FACTOR: Final = 0.1
MAX_CHANGE: Final = 0.25
# As in proxy/overload/adaptive.py: a rate that is so close is natural; a smaller step waits until it adds up.
CLOSE: Final = 1e-9
SMALLEST_STEP: Final = 0.01
# Memory is in events of decisions only. For longer than this the last one says nothing.
HOLD_SECONDS: Final = 60
MOST_MARKS: Final = 20
# After the last sample: more seconds than any rate needs to be natural again.
FOREVER: Final = 1 << 60


class Marks(NamedTuple):
    """The marks of memory, as fractions of its limit."""

    high: float
    low: float

    def pressure(self, ratio: float | None) -> float:
        """Return the pressure from 0 at the low mark to 1 at the high mark; 0 if the ratio is not known."""
        if ratio is None:
            return 0.0
        if self.high <= self.low:
            return 1.0 if ratio > self.low else 0.0
        return min(1.0, max(0.0, (ratio - self.low) / (self.high - self.low)))


THRESHOLD_MARKS: Final = Marks(0.85, 0.75)
ADAPTIVE_MARKS: Final = Marks(0.85, 0.70)


class MarksStep(NamedTuple):
    """The ratio in a second, None if it is not known, and what the marks make of it; `share` 1 is the natural rate."""

    second: int
    ratio: float | None
    pressure: float
    share: float
    paused: bool


@dataclass(slots=True)
class MarksThrottle:
    """Both throttles under one pair of marks; `share` is None while nobody's rate is limited."""

    marks: Marks
    share: float | None = None
    paused: bool = False

    @property
    def is_calm(self) -> bool:
        return self.share is None and not self.paused

    def step(self, second: int, ratio: float | None) -> MarksStep:
        pressure = self.marks.pressure(ratio)
        if ratio is not None and ratio >= self.marks.high:
            self.paused = True
        elif ratio is None or ratio < self.marks.low:
            self.paused = False
        self.share = self._next_share(pressure)
        return MarksStep(second, ratio, pressure, 1.0 if self.share is None else self.share, self.paused)

    def _next_share(self, pressure: float) -> float | None:
        if pressure <= 0 and (self.share is None or self.share >= 1 - CLOSE):
            return None
        last = 1.0 if self.share is None else self.share
        ideal = 1.0 - pressure * (1.0 - MIN_RATE_FACTOR)
        found = max(MIN_RATE_FACTOR, min(max(ideal, last - MAX_CHANGE), last + MAX_CHANGE))
        if pressure > 0 and self.share is not None and abs(found - last) <= SMALLEST_STEP:
            return last
        return found


def replay_marks(samples: Sequence[tuple[int, float | None]], marks: Marks) -> Iterator[MarksStep]:
    """Replay one start of a proxy: samples are seconds since 1970, ascending, with the ratio of memory.

    A ratio holds until the next sample, at most `HOLD_SECONDS`; then it is not known, which slows nobody. Seconds in
    which it is not known and nobody is slowed are left out.
    """
    throttle = MarksThrottle(marks)
    for (begin, ratio), (end, _) in pairwise([*samples, (FOREVER, None)]):
        for second in range(begin, end):
            known = ratio if second - begin < HOLD_SECONDS else None
            if known is None and throttle.is_calm:
                break
            yield throttle.step(second, known)


def add_marks(parser: argparse.ArgumentParser) -> None:
    """Declare the marks to replay."""
    for name, default in (("high", THRESHOLD_MARKS.high), ("low", THRESHOLD_MARKS.low)):
        parser.add_argument(
            f"--overload-{name}", metavar="V,V,...",
            help=f"{name} marks of memory to replay recorded overload with, as fractions (default, if the other is"
            f" given: {default:g})",
        )  # fmt: skip


def given_marks(high: str | None, low: str | None) -> tuple[Marks, ...]:
    """Read the marks: every pair of a high and a lower low one; none if neither is given. Raises PipelineError."""
    if high is None and low is None:
        return ()
    highs = [THRESHOLD_MARKS.high] if high is None else _fractions("--overload-high", high)
    lows = [THRESHOLD_MARKS.low] if low is None else _fractions("--overload-low", low)
    found = tuple(dict.fromkeys(Marks(above, below) for above in highs for below in lows if below < above))
    if not found:
        raise PipelineError(f"--overload-low: got {lows}, expected at least one below --overload-high {highs}")
    if len(found) > MOST_MARKS:
        raise PipelineError(f"--overload-high, --overload-low: got {len(found)} pairs, expected at most {MOST_MARKS}")
    return found


def _fractions(option: str, text: str) -> list[float]:
    found = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        # NaN is not between anything.
        if not 0 < value <= 1:
            raise PipelineError(f"{option}: got {word.strip()!r}, expected fractions above 0 and up to 1, such as 0.85")
        found.append(value)
    return found
