"""Replay a grid of scenarios over prepared traces: work items for Spark's tasks, and the sums of what they bring back.

Rule: a work item is a part of the trace, a load, a place in the fleet and a block of scenarios, which its task loops
over inside the kernel. Sums are added up in Spark: what comes back does not grow with the trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import Row, SparkSession

from pipeline.core.buckets import BUCKETS
from pipeline.core.model import WAITS, Aggregates, Limits, Outcome
from pipeline.replay.engine import simulate
from pipeline.replay.parts import Part, Survey, over_parts
from pipeline.replay.slices import Slice
from pipeline.replay.tally import rows_of, summed
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import warm_up_from

# Requests times scenarios of one work item: seconds of work, so that there is progress to show and work to share out.
ITEM_ROWS: Final = 8_000_000
_COLUMNS: Final = "place int, scenario int, what int, at int, count long"
# What counts are of, in the order of the arrays of `_done`.
_OUTCOMES, _WAITS = 0, 1
_QUESTIONS: Final = _WAITS + len(WAITS)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the scenarios are tried: with how many times the clients, on how many proxies for each recorded one."""

    load: int
    fleet: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One task's work: its part of the trace, the number of its place, which replica, and scenarios from .. to."""

    part: Part
    place: int
    replica: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Total:
    """What came of one scenario in one place, over all proxies; `short_warm_ups` counts windows without all history."""

    counts: Aggregates
    short_warm_ups: int


def replay_grid(
    spark: SparkSession, prepared: Prepared, found: Survey, places: Sequence[Place], limits: Sequence[Limits]
) -> dict[tuple[Place, int], Total]:
    """Try each of `limits` in each place; gives the sums by place and number of the limits."""
    items = work_items(prepared, found, places, limits)

    def work(number: int, part: Slice) -> pd.DataFrame:
        item = items[number]
        place = places[item.place]
        mine = part.times(place.load).of_replica(item.replica, place.fleet)
        return _done(item, simulate(mine, limits[item.first : item.last]))

    rows = over_parts(spark, prepared.path, found.way, [item.part for item in items], work, _COLUMNS)
    found_counts: dict[tuple[Place, int], list[Row]] = {}
    for row in summed(rows, "place", "scenario"):
        found_counts.setdefault((places[row.place], row.scenario), []).append(row)
    totals = {
        (place, number): _counts(found_counts.get((place, number), []))
        for place in places
        for number in range(len(limits))
    }
    short = _short_warm_ups(prepared, found, limits)
    return {key: Total(counts, short) for key, counts in totals.items()}


def work_items(prepared: Prepared, found: Survey, places: Sequence[Place], limits: Sequence[Limits]) -> list[WorkItem]:
    """Share the work out."""
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
    """Give, for each proxy, how long a request can be there at most, in us."""
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


def _done(item: WorkItem, counted: Sequence[Aggregates]) -> pd.DataFrame:
    scenarios = zip(range(item.first, item.last), counted, strict=True)
    return pd.concat([rows_of(_arrays(each), place=item.place, scenario=number) for number, each in scenarios])


def _arrays(counted: Aggregates) -> list[NDArray[np.int64]]:
    most = np.array([counted.peak_heap_bytes, counted.peak_direct_bytes, counted.last_end_us], np.int64)
    return [counted.outcomes, *counted.waits, np.array([counted.questions], np.int64), most]


def _counts(rows: Sequence[Row]) -> Aggregates:
    outcomes, waits = np.zeros(len(Outcome), np.int64), np.zeros((len(WAITS), BUCKETS), np.int64)
    questions, most = 0, [0, 0, 0]
    for row in rows:
        if row["what"] == _OUTCOMES:
            outcomes[row["at"]] = row["sum"]
        elif row["what"] < _QUESTIONS:
            waits[row["what"] - _WAITS, row["at"]] = row["sum"]
        elif row["what"] == _QUESTIONS:
            questions = row["sum"]
        else:
            most[row["at"]] = row["most"]
    return Aggregates(outcomes, waits, most[0], most[1], questions, most[2])
