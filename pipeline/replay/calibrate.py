"""How far to trust the replay: the recorded limits first, what came of it against what was recorded.

Rule: a trace is replayed piece by piece, each with the limits that were in force then. Two figures are compared, and
the larger is the error. Of outcomes: the largest difference between the shares of answered, refused and cancelled
requests. Of waits: the difference between the 99th percentiles of answered requests, by the recorded one or by
`FLOOR_US` if that is larger, since nobody chooses limits by milliseconds. The replay is an open loop: clients come when
they came, whatever becomes of them, and brokers take as long as they took. Requests that their broker failed are
replayed, not compared.

What one proxy is off by must not make good what another is off by the other way: the error of all together is no less
than the mean of the proxies' own, each at most 1 and weighed by its requests. So a small proxy alone decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import Row, SparkSession

from pipeline.replay.buckets import BUCKETS, count_waits, quantile
from pipeline.replay.kernel import replay
from pipeline.replay.model import Limits, Outcome, Result
from pipeline.replay.parts import Part, Survey, over_parts
from pipeline.replay.slices import Slice
from pipeline.replay.tally import longest, packed, refused, unpacked
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import warm_up_from

__all__ = ["ALL", "FLOOR_US", "Calibration", "Seen", "calibrate", "compare", "outcome_error", "together", "wait_error"]

FLOOR_US: Final = 100_000
# The row for all proxies together.
ALL: Final = ""
_COLUMNS: Final = "number int, recorded binary, simulated binary, recorded_waits binary, simulated_waits binary"
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Seen:
    """One side: counts by outcome, and the waits of answered requests by bucket."""

    outcomes: Int64s
    waits: Int64s

    def __add__(self, other: "Seen") -> "Seen":
        """Put two parts together."""
        return Seen(self.outcomes + other.outcomes, self.waits + other.waits)

    @property
    def shares(self) -> tuple[float, float, float]:
        """Give the shares of answered, refused and cancelled requests."""
        total = max(1, int(self.outcomes.sum()))
        ok, left = (int(self.outcomes[outcome]) / total for outcome in (Outcome.OK, Outcome.CANCELLED))
        return ok, refused(self.outcomes) / total, left


NOTHING_SEEN: Final = Seen(np.zeros(len(Outcome), np.int64), np.zeros(BUCKETS, np.int64))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Both sides of one proxy, or of all; of all, `mean_error` is that of the proxies' own errors."""

    proxy_id: str
    recorded: Seen
    simulated: Seen
    mean_error: float = 0.0

    @property
    def requests(self) -> int:
        """Count the requests that are compared."""
        return int(self.recorded.outcomes.sum())

    @property
    def error(self) -> float:
        """Give the largest of the errors."""
        both = outcome_error(self.recorded, self.simulated), wait_error(self.recorded, self.simulated)
        return max(*both, self.mean_error)

    def row(self, imputed_share: float) -> dict[str, object]:
        """Give the row of the table `calibration`."""
        found: dict[str, object] = {"proxy_id": self.proxy_id, "requests": self.requests}
        for side, seen in (("recorded", self.recorded), ("simulated", self.simulated)):
            found |= {
                f"{side}_ok": int(seen.outcomes[Outcome.OK]),
                f"{side}_refused": refused(seen.outcomes),
                f"{side}_cancelled": int(seen.outcomes[Outcome.CANCELLED]),
                **{f"{side}_p{share}_us": quantile(seen.waits, share / 100) for share in (50, 95, 99)},
                f"{side}_max_us": longest(seen.waits),
            }
        return found | {
            "outcome_error": outcome_error(self.recorded, self.simulated),
            "wait_error": wait_error(self.recorded, self.simulated),
            "error": self.error,
            "imputed_share": imputed_share,
        }


def outcome_error(recorded: Seen, simulated: Seen) -> float:
    """Give the largest difference between shares of outcomes."""
    return max(abs(one - other) for one, other in zip(recorded.shares, simulated.shares, strict=True))


def wait_error(recorded: Seen, simulated: Seen) -> float:
    """Give the difference between the 99th percentiles, by the recorded one or by the floor.

    Both come from buckets: neighbours are the same as far as anybody can tell, and differ by nothing.
    """
    if not (recorded.waits.any() and simulated.waits.any()):
        return 0.0
    one, other = quantile(recorded.waits, 0.99), quantile(simulated.waits, 0.99)
    ratio = 2 ** (1.01 / 8)
    if one and other and 1 / ratio <= other / one <= ratio:
        return 0.0
    return abs(other - one) / max(one, FLOOR_US)


def calibrate(spark: SparkSession, prepared: Prepared, found: Survey) -> list[Calibration]:
    """Replay what was recorded under the limits of the time; the first is for all proxies together.

    `found` is a survey whose windows do not go over a change of limits.
    """
    parts, limits = _parts(prepared, found)

    def work(number: int, part: Slice) -> pd.DataFrame:
        recorded, simulated = compare(part, limits[number])
        return pd.DataFrame(
            {
                # Arrow takes no other width for the column.
                "number": np.array([number], np.int32),
                "recorded": [packed(recorded.outcomes)],
                "simulated": [packed(simulated.outcomes)],
                "recorded_waits": [packed(recorded.waits)],
                "simulated_waits": [packed(simulated.waits)],
            }
        )

    sides = {proxy.proxy_id: (NOTHING_SEEN, NOTHING_SEEN) for proxy in prepared.proxies}
    for row in over_parts(spark, prepared.path, found.way, parts, work, _COLUMNS):
        recorded, simulated = _sides(row)
        name = parts[row.number].proxy_id
        sides[name] = sides[name][0] + recorded, sides[name][1] + simulated
    each = [Calibration(name, *both) for name, both in sides.items()]
    return [together(each), *each]


def together(each: Sequence[Calibration]) -> Calibration:
    """Put all proxies together."""
    recorded, simulated = NOTHING_SEEN, NOTHING_SEEN
    for one in each:
        recorded, simulated = recorded + one.recorded, simulated + one.simulated
    off = sum(one.requests * min(1.0, one.error) for one in each)
    return Calibration(ALL, recorded, simulated, off / max(1, sum(one.requests for one in each)))


def compare(part: Slice, limits: Limits) -> tuple[Seen, Seen]:
    """Give what was recorded of a slice, and what the replay makes of it."""
    result = replay(part.trace(limits.fairness), limits)
    counted = np.arange(len(part)) >= part.warm_up
    compared = counted & (part.recorded_outcome != int(Outcome.FAILED))
    recorded = _seen(part.recorded_outcome[compared], part.recorded_wait_us[compared])
    return recorded, _seen(result.outcome[compared].astype(np.int64), _waits(part, result)[compared])


def _waits(part: Slice, result: Result) -> Int64s:
    """Give the life of each request without the broker and writing: what the recorded wait is."""
    numbers = part.numbers
    arrival = numbers["arrival_us"] - (numbers["arrival_us"][0] if len(part) else 0)
    work = numbers["upstream_us"] + numbers["hold_us"] + numbers["write_us"]
    return np.maximum(0, result.end_us - arrival - work)


def _seen(outcomes: Int64s, waits: Int64s) -> Seen:
    counts = np.bincount(outcomes, minlength=len(Outcome)).astype(np.int64)
    return Seen(counts, count_waits(waits[outcomes == int(Outcome.OK)]))


def _parts(prepared: Prepared, found: Survey) -> tuple[list[Part], list[Limits]]:
    parts, limits = [], []
    for proxy in prepared.proxies:
        for window in found.windows[proxy.proxy_id]:
            mine = prepared.limits[window.limits_id]
            warm_us = warm_up_from(window, mine.request_timeout_us + proxy.longest_work_us, load=1)
            parts.append(Part(proxy.proxy_id, warm_us, window.start_us, window.end_us))
            limits.append(mine)
    return parts, limits


def _sides(row: Row) -> tuple[Seen, Seen]:
    recorded = Seen(unpacked(row.recorded), unpacked(row.recorded_waits))
    return recorded, Seen(unpacked(row.simulated), unpacked(row.simulated_waits))
