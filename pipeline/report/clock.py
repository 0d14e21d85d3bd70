"""The bins of the time axis: few enough to be looked at, of a length that people know. No pyspark here."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pandas as pd

MOST_BINS: Final = 240
_SECOND: Final = 1_000_000
_STEPS: Final = (
    *(_SECOND // part for part in (20, 10, 5, 2)),
    *(_SECOND * seconds for seconds in (1, 2, 5, 10, 30)),
    *(_SECOND * 60 * minutes for minutes in (1, 2, 5, 10, 30)),
    *(_SECOND * 3600 * hours for hours in (1, 2, 6, 12)),
    *(_SECOND * 86_400 * days for days in (1, 2, 7, 14, 30)),
)


@dataclass(frozen=True, slots=True)
class Clock:
    """Bins of `step_us` from `origin_us` (microseconds since 1970, UTC) on; what is later is in the last."""

    origin_us: int
    step_us: int
    bins: int

    @property
    def begin_ms(self) -> list[int]:
        """Return where each bin begins, in milliseconds since 1970."""
        return [(self.origin_us + number * self.step_us) // 1000 for number in range(self.bins)]

    def whole(self, frame: pd.DataFrame, fill: float | None = 0) -> pd.DataFrame:
        """Return a frame with column `bin` with one row for each bin, and `at_ms`; missing values are `fill`."""
        whole = frame.set_index("bin").reindex(range(self.bins))
        whole = whole if fill is None else whole.fillna(fill)
        return whole.assign(at_ms=self.begin_ms).reset_index()


def clock_of(begin_us: int, end_us: int) -> Clock:
    """Choose the bins for a time; the first begins at a multiple of their length."""
    for step in (*_STEPS, max(_STEPS[-1], -(-(end_us - begin_us) // (MOST_BINS - 1)))):
        origin = begin_us // step * step
        bins = (max(end_us, begin_us) - origin) // step + 1
        if bins <= MOST_BINS:
            return Clock(origin, step, bins)
    raise AssertionError("the last step is long enough")


def when(ms: int) -> str:
    """Write a moment, UTC."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{ms % 1000:03d}" if ms % 1000 else "")


def second(us: int) -> str:
    """Write the second of a moment in microseconds since 1970, UTC."""
    return when(us // _SECOND * 1000)
