"""Replay a grid of scenarios over prepared traces: work items for Spark's tasks, and the sums of what they bring back.

Rule: a work item is a part of the trace, a load, a place in the fleet and a block of scenarios, which its task loops
over inside the kernel. Sums are added up in Spark: what comes back does not grow with the trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from pipeline.core.buckets import BUCKETS
from pipeline.core.model import WAITS, Aggregates, Int64s, Limits, Outcome, Trace
from pipeline.replay import prepare
from pipeline.replay.kernel import replay_many
from pipeline.replay.parts import WORK_HERE, Part, Survey, Way, over_parts
from pipeline.replay.slices import Slice
from pipeline.replay.tally import rows_of, summed
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import warm_up_from

# Requests times scenarios of one work item: seconds of work, so that there is progress to show and work to share out.
ITEM_ROWS: Final = 8_000_000
_COLUMNS: Final = "place int, scenario int, what int, at int, count long"
# The arrays of `_arrays`: outcomes, waits of all kinds in a row, questions, and what is the largest of all parts.
_SIZES: Final = (len(Outcome), len(WAITS) * BUCKETS, 1, 3)
_LARGEST: Final = 3
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Place:
    """Where the scenarios are tried: with how many times the clients, on how many proxies for each recorded one."""

    load: int
    fleet: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The work of one task: its part of the trace, the number of its place, which replica, and scenarios from .. to."""

    part: Part
    place: int
    replica: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Total:
    """The result of a scenario in one place, over all proxies; `short_warm_ups` counts windows without all history."""

    counts: Aggregates
    short_warm_ups: int


def replay_grid(
    spark: SparkSession, prepared: Prepared, found: Survey, places: Sequence[Place], limits: Sequence[Limits]
) -> dict[tuple[Place, int], Total]:
    """Try each of `limits` in each place; returns the sums by place and number of the limits."""
    items = work_items(prepared, found, places, limits)

    def work(number: int, part: Slice) -> pd.DataFrame:
        item = items[number]
        place = places[item.place]
        mine = part.times(place.load).of_replica(item.replica, place.fleet)
        counted = enumerate(simulate(mine, limits[item.first : item.last]), item.first)
        return pd.concat([rows_of(_arrays(each), place=item.place, scenario=scenario) for scenario, each in counted])

    work_rows = prepared.rows * sum(place.load for place in places) * len(limits)
    way = Way.DIRECT if found.way is Way.HERE and work_rows > WORK_HERE else found.way
    rows = over_parts(spark, prepared.path, way, [item.part for item in items], work, _COLUMNS)
    counts = summed(rows, ("place", "scenario"), _SIZES, _LARGEST)
    nothing = [np.zeros(size, np.int64) for size in _SIZES]
    short = _short_warm_ups(prepared, found, limits)
    return {
        (place, scenario): Total(_counts(counts.get((number, scenario), nothing)), short)
        for number, place in enumerate(places)
        for scenario in range(len(limits))
    }


def simulate(part: Slice, limits: Sequence[Limits], load: int = 1) -> list[Aggregates]:
    """Return what becomes of `part` under each of `limits`; the requests of its warm-up are counted nowhere.

    Most of a grid has more memory than was ever asked for, and comes to the same.
    """
    found: dict[Limits, Aggregates] = {}
    for fairness in dict.fromkeys(each.fairness for each in limits):
        trace = prepare.Prepared.of(part.trace(fairness))
        replayed: list[Limits] = []
        for mine in sorted((each for each in limits if each.fairness == fairness), key=_memory, reverse=True):
            like = (found[each] for each in replayed if _decides_alike(trace.trace, each, found[each], mine))
            if (same := next(like, None)) is None:
                (same,) = replay_many(trace, [mine], load, part.warm_up)
                replayed.append(mine)
            found[mine] = same
    return [found[each] for each in limits]


def _memory(limits: Limits) -> tuple[int, int]:
    return limits.heap_bytes or _NO_LIMIT, limits.direct_bytes or _NO_LIMIT


def _decides_alike(trace: Trace, limits: Limits, found: Aggregates, other: Limits) -> bool:
    """Return whether `other`, with no more memory, decides all as `limits` did, from which `found` came.

    First come, first served, what has found room finds it again if memory is at least what was held at most, and what
    has found none finds none. Nothing is as simple with turns, whose length goes by the limit. A broker has half of
    heap memory, and what waits for the other half is in no peak: there must have been room for the largest, too.
    """
    (heap, direct), (more_heap, more_direct) = _memory(other), _memory(limits)
    if other.fairness != "fifo" or limits != replace(
        other, heap_bytes=limits.heap_bytes, direct_bytes=limits.direct_bytes
    ):
        return False
    if heap != more_heap:
        largest = trace.estimate_bytes.max(initial=0)
        if not found.peak_heap_bytes + largest <= heap // 2 <= more_heap // 2:
            return False
    if limits.answer_limit_bytes != other.answer_limit_bytes and trace.direct_bytes.max(initial=0) > min(heap, direct):
        return False
    return found.peak_direct_bytes <= direct <= more_direct


def work_items(prepared: Prepared, found: Survey, places: Sequence[Place], limits: Sequence[Limits]) -> list[WorkItem]:
    """Divide the work by proxy, window, place and replica, and scenarios by blocks of about `ITEM_ROWS` requests."""
    lives = _lives(prepared, limits)
    items = []
    for proxy_id, windows in found.windows.items():
        for window in windows:
            warm_us = warm_up_from(window, lives[proxy_id])
            for number, place in enumerate(places):
                block = max(1, ITEM_ROWS // (window.rows * place.load))
                part = Part(proxy_id, warm_us, window.start_us, window.end_us)
                items += [
                    WorkItem(part, number, replica, first, min(first + block, len(limits)))
                    for first in range(0, len(limits), block)
                    for replica in range(place.fleet)
                ]
    return items


def _lives(prepared: Prepared, limits: Sequence[Limits]) -> dict[str, int]:
    """Return, for each proxy, how long a request can be there at most, in us."""
    clock = max(each.request_timeout_us for each in limits)
    return {proxy.proxy_id: clock + proxy.longest_work_us for proxy in prepared.proxies}


def _short_warm_ups(prepared: Prepared, found: Survey, limits: Sequence[Limits]) -> int:
    """Count windows whose warm-up ends at the window before, although older requests could still be there."""
    # The window before the second is the beginning of the trace: nothing older is there.
    return sum(
        window.start_us - life_us < window.floor_us
        for name, life_us in _lives(prepared, limits).items()
        for window in found.windows[name][2:]
    )


def _arrays(counted: Aggregates) -> list[Int64s]:
    largest = np.array([counted.peak_heap_bytes, counted.peak_direct_bytes, counted.last_end_us], np.int64)
    return [counted.outcomes, counted.waits.ravel(), np.array([counted.questions], np.int64), largest]


def _counts(arrays: Sequence[Int64s]) -> Aggregates:
    outcomes, waits, (questions,), (heap, direct, last_end) = arrays
    return Aggregates(
        outcomes, waits.reshape(len(WAITS), BUCKETS), int(heap), int(direct), int(questions), int(last_end)
    )
