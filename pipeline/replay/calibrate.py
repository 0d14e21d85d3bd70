"""The recorded limits replayed: what comes of it beside what was recorded. How far that is off is said elsewhere.

Rule: a trace is replayed piece by piece, each with the limits that were in force then. The replay is an open loop:
clients come when they came, whatever becomes of them, and brokers take as long as they took. Requests that their broker
failed are replayed, not compared. The errors are those of `pipeline.core.calibration`.

A busy machine is late: a request waits for its turn where no rule has it wait. The time that brokers, reading and
writing took is in the events, and replayed as it was. The replay knows those of the other waits that the rules make;
the wait of a request beyond these, for anything but memory, is the machine's lateness, and is told apart from the
limiter's waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from pipeline.core.buckets import BUCKETS, count_waits, quantile
from pipeline.core.calibration import ALL, outcome_error
from pipeline.core.model import Int64s, Limits, Outcome, Result
from pipeline.replay.kernel import replay
from pipeline.replay.parts import Part, Survey, over_parts
from pipeline.replay.slices import Slice
from pipeline.replay.tally import longest, refused, rows_of, summed
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import warm_up_from

_COLUMNS: Final = "proxy int, what int, at int, count long"
# Counts by outcome, and waits by bucket, of both sides; both parts of the recorded waits.
_SIZES: Final = (len(Outcome), BUCKETS, len(Outcome), BUCKETS, BUCKETS, BUCKETS)
_NOTHING: Final = [np.zeros(size, np.int64) for size in _SIZES]


@dataclass(frozen=True, slots=True)
class Seen:
    """The view of one side, recorded or replayed: counts by outcome, and the waits of answered requests by bucket."""

    outcomes: Int64s
    waits: Int64s

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(self.outcomes + other.outcomes, self.waits + other.waits)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Recorded waits of answered requests, cut in two: what the limiter made of them, and the machine; by bucket."""

    limiter: Int64s
    machine: Int64s

    def __add__(self, other: "Lateness") -> "Lateness":
        return Lateness(self.limiter + other.limiter, self.machine + other.machine)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Both sides of one proxy, or of all; without `late` the machine never was."""

    proxy_id: str
    recorded: Seen
    simulated: Seen
    late: Lateness | None = None

    def __add__(self, other: "Calibration") -> "Calibration":
        recorded, simulated = self.recorded + other.recorded, self.simulated + other.simulated
        return Calibration(self.proxy_id, recorded, simulated, self._lateness + other._lateness)

    @property
    def _lateness(self) -> Lateness:
        return self.late or Lateness(self.recorded.waits, np.zeros(BUCKETS, np.int64))

    def row(self, imputed_share: float) -> dict[str, object]:
        """Return the row of the table `calibration`."""
        found: dict[str, object] = {"proxy_id": self.proxy_id, "requests": int(self.recorded.outcomes.sum())}
        for side, seen in (("recorded", self.recorded), ("simulated", self.simulated)):
            found |= {
                f"{side}_ok": int(seen.outcomes[Outcome.OK]),
                f"{side}_refused": refused(seen.outcomes),
                f"{side}_cancelled": int(seen.outcomes[Outcome.CANCELLED]),
                **{f"{side}_p{share}_us": quantile(seen.waits, share / 100) for share in (50, 95, 99)},
                f"{side}_max_us": longest(seen.waits),
            }
        late = self._lateness
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
        arrays = [recorded.outcomes, recorded.waits, simulated.outcomes, simulated.waits, late.limiter, late.machine]
        return rows_of(arrays, proxy=names.index(parts[number].proxy_id))

    sums = summed(over_parts(spark, prepared.path, found.way, parts, work, _COLUMNS), ["proxy"], _SIZES)
    each = [_of(name, sums.get((number,), _NOTHING)) for number, name in enumerate(names)]
    return [together(each), *each]


def together(each: Sequence[Calibration]) -> Calibration:
    """Put all proxies together."""
    return sum(each, _of(ALL, _NOTHING))


def _of(proxy_id: str, arrays: Sequence[Int64s]) -> Calibration:
    return Calibration(proxy_id, Seen(*arrays[:2]), Seen(*arrays[2:4]), Lateness(*arrays[4:]))


def compare(part: Slice, limits: Limits) -> tuple[Seen, Seen, Lateness]:
    """Return what was recorded of a slice, what the replay makes of it, and how late the machine was."""
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
    """Return what each request waited, for anything but memory, beyond what the replay has it wait for that."""
    memory = result.heap_wait_us + result.heap_update_wait_us + result.direct_wait_us
    others = np.maximum(0, part.recorded_wait_us - part.recorded_memory_wait_us)
    beyond = np.maximum(0, others - np.maximum(0, waits - memory))
    # The replay of a request that it refuses says nothing of what an answered one waits.
    return np.where(result.outcome == int(Outcome.OK), beyond, 0)


def _waits(part: Slice, result: Result) -> Int64s:
    """Return the life of each request without the broker and writing: what the recorded wait is."""
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
