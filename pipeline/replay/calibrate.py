"""The recorded limits replayed: what comes of it beside what was recorded. How far that is off, is said elsewhere.

Rule: a trace is replayed piece by piece, each with the limits that were in force then. The replay is an open loop:
clients come when they came, whatever becomes of them, and brokers take as long as they took. Requests that their broker
failed are replayed, not compared. The errors are those of `pipeline.core.calibration`.

A busy machine is late: a request waits for its turn where no rule has it wait. What brokers, reading and writing took
is in the events, and replayed as it was. Of the other waits the replay knows those that the rules make; what a request
waited beyond these, for anything but memory, is the machine's lateness, and is told apart from the limiter's waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from pipeline.core.buckets import BUCKETS, count_waits, quantile
from pipeline.core.calibration import ALL, outcome_error
from pipeline.core.model import Limits, Outcome, Result
from pipeline.replay.kernel import replay
from pipeline.replay.parts import Part, Survey, over_parts
from pipeline.replay.slices import Slice
from pipeline.replay.tally import longest, refused, rows_of, summed
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import warm_up_from

__all__ = ["Calibration", "Lateness", "Seen", "calibrate", "compare", "together"]

_COLUMNS: Final = "proxy int, what int, at int, count long"
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Seen:
    """One side: counts by outcome, and the waits of answered requests by bucket."""

    outcomes: Int64s
    waits: Int64s

    def __add__(self, other: "Seen") -> "Seen":
        """Put two parts together."""
        return Seen(self.outcomes + other.outcomes, self.waits + other.waits)


NOTHING_SEEN: Final = Seen(np.zeros(len(Outcome), np.int64), np.zeros(BUCKETS, np.int64))


@dataclass(frozen=True, slots=True)
class Lateness:
    """Recorded waits of answered requests, cut in two: what the limiter made of them, and the machine; by bucket."""

    limiter: Int64s
    machine: Int64s

    def __add__(self, other: "Lateness") -> "Lateness":
        """Put two parts together."""
        return Lateness(self.limiter + other.limiter, self.machine + other.machine)


NEVER_LATE: Final = Lateness(np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Both sides of one proxy, or of all; without `late` the machine never was."""

    proxy_id: str
    recorded: Seen
    simulated: Seen
    late: Lateness | None = None

    @property
    def requests(self) -> int:
        """Count the requests that are compared."""
        return int(self.recorded.outcomes.sum())

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
        late = self.late or Lateness(self.recorded.waits, NEVER_LATE.machine)
        found["limiter_p99_us"] = quantile(late.limiter, 0.99)
        found |= {f"late_p{share}_us": quantile(late.machine, share / 100) for share in (50, 99)}
        return found | {"outcome_error": outcome_error(found), "imputed_share": imputed_share}


def calibrate(spark: SparkSession, prepared: Prepared, found: Survey, direct_percent: int = 100) -> list[Calibration]:
    """Replay what was recorded under the limits of the time; the first is for all proxies together.

    `found` is a survey whose windows do not go over a change of limits. With `direct_percent` lists have that part of
    direct memory, as those of clients that have not shown that they read.
    """
    parts, whole = _parts(prepared, found)
    limits = [_with_part(each, direct_percent) for each in whole]
    names = [proxy.proxy_id for proxy in prepared.proxies]

    def work(number: int, part: Slice) -> pd.DataFrame:
        recorded, simulated, late = compare(part, limits[number])
        arrays = [recorded.outcomes, simulated.outcomes, recorded.waits, simulated.waits, late.limiter, late.machine]
        return rows_of(arrays, proxy=names.index(parts[number].proxy_id))

    sides = [_Sums() for _ in names]
    for row in summed(over_parts(spark, prepared.path, found.way, parts, work, _COLUMNS), "proxy"):
        sides[row.proxy].arrays[row.what][row.at] = row["sum"]
    each = [side.calibration(name) for name, side in zip(names, sides, strict=True)]
    return [together(each), *each]


class _Sums:
    """The counts of one proxy, in the order in which tasks give them."""

    def __init__(self) -> None:
        self.arrays = [np.zeros(len(Outcome), np.int64) for _ in range(2)]
        self.arrays += [np.zeros(BUCKETS, np.int64) for _ in range(4)]

    def calibration(self, name: str) -> Calibration:
        """Give both sides, and the machine's lateness."""
        recorded, simulated, *waits = self.arrays
        late = Lateness(waits[2], waits[3])
        return Calibration(name, Seen(recorded, waits[0]), Seen(simulated, waits[1]), late)


def together(each: Sequence[Calibration]) -> Calibration:
    """Put all proxies together."""
    found = Calibration(ALL, NOTHING_SEEN, NOTHING_SEEN, NEVER_LATE)
    for one in each:
        found = _added(found, one)
    return found


def _added(one: Calibration, other: Calibration) -> Calibration:
    late = [each.late or Lateness(each.recorded.waits, NEVER_LATE.machine) for each in (one, other)]
    recorded, simulated = one.recorded + other.recorded, one.simulated + other.simulated
    return Calibration(one.proxy_id, recorded, simulated, late[0] + late[1])


def compare(part: Slice, limits: Limits) -> tuple[Seen, Seen, Lateness]:
    """Give what was recorded of a slice, what the replay makes of it, and how late the machine was."""
    result = replay(part.trace(limits.fairness), limits)
    counted = np.arange(len(part)) >= part.warm_up
    compared = counted & (part.recorded_outcome != int(Outcome.FAILED))
    recorded = _seen(part.recorded_outcome[compared], part.recorded_wait_us[compared])
    waits = _waits(part, result)
    late = _lateness(part, result, waits)
    answered = compared & (part.recorded_outcome == int(Outcome.OK))
    cut = Lateness(count_waits((part.recorded_wait_us - late)[answered]), count_waits(late[answered]))
    return recorded, _seen(result.outcome[compared].astype(np.int64), waits[compared]), cut


def _lateness(part: Slice, result: Result, waits: Int64s) -> Int64s:
    """Give what each request waited, for anything but memory, beyond what the replay has it wait for that."""
    memory = result.heap_wait_us + result.heap_update_wait_us + result.direct_wait_us
    others = np.maximum(0, part.recorded_wait_us - part.recorded_memory_wait_us)
    beyond = np.maximum(0, others - np.maximum(0, waits - memory))
    # The replay of a request that it refuses says nothing of what an answered one waits.
    return np.where(result.outcome == int(Outcome.OK), beyond, 0)


def _waits(part: Slice, result: Result) -> Int64s:
    """Give the life of each request without the broker and writing: what the recorded wait is."""
    numbers = part.numbers
    arrival = numbers["arrival_us"] - (numbers["arrival_us"][0] if len(part) else 0)
    work = numbers["upstream_us"] + numbers["hold_us"] + numbers["write_us"]
    return np.maximum(0, result.end_us - arrival - work)


def _seen(outcomes: Int64s, waits: Int64s) -> Seen:
    counts = np.bincount(outcomes, minlength=len(Outcome)).astype(np.int64)
    return Seen(counts, count_waits(waits[outcomes == int(Outcome.OK)]))


def _with_part(limits: Limits, direct_percent: int) -> Limits:
    part = limits.direct_bytes * direct_percent // 100
    # The proxy goes by all of direct memory when it refuses a list for its size.
    return replace(limits, direct_bytes=part, max_answer_bytes=limits.answer_limit_bytes)


def _parts(prepared: Prepared, found: Survey) -> tuple[list[Part], list[Limits]]:
    parts, limits = [], []
    for proxy in prepared.proxies:
        for window in found.windows[proxy.proxy_id]:
            mine = prepared.limits[window.limits_id]
            warm_us = warm_up_from(window, mine.request_timeout_us + proxy.longest_work_us)
            parts.append(Part(proxy.proxy_id, warm_us, window.start_us, window.end_us))
            limits.append(mine)
    return parts, limits
