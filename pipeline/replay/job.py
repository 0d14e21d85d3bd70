"""Replay a grid of scenarios over prepared traces: work items for Spark's tasks, and the sums of what they bring back.

Rule: a work item is a part of the trace, a load, a place in the fleet and a block of scenarios, which its task loops
over inside the kernel. Only sums come back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import Row, SparkSession

from pipeline.replay.buckets import BUCKETS
from pipeline.replay.engine import simulate
from pipeline.replay.model import WAITS, Aggregates, Limits
from pipeline.replay.parts import Part, Survey, over_parts
from pipeline.replay.slices import Slice
from pipeline.replay.tally import NOTHING, added, packed, unpacked
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import warm_up_from

__all__ = ["Place", "Total", "WorkItem", "replay_grid", "work_items"]

# Requests times scenarios of one work item: seconds of work, so that there is progress to show and work to share out.
ITEM_ROWS: Final = 8_000_000
_COLUMNS: Final = "place int, scenario int, outcomes binary, waits binary, others binary"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the scenarios are tried: at which load, on how many proxies for each recorded one."""

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
        mine = part.of_replica(item.replica, place.fleet)
        return _done(item, simulate(mine, limits[item.first : item.last], place.load))

    rows = over_parts(spark, prepared.path, found.way, [item.part for item in items], work, _COLUMNS)
    totals = {(place, number): NOTHING for place in places for number in range(len(limits))}
    for row in rows:
        key = (places[row.place], row.scenario)
        totals[key] = added(totals[key], _counts(row))
    short = {place: _short_warm_ups(prepared, found, place, limits) for place in places}
    return {key: Total(counts, short[key[0]]) for key, counts in totals.items()}


def work_items(prepared: Prepared, found: Survey, places: Sequence[Place], limits: Sequence[Limits]) -> list[WorkItem]:
    """Share the work out."""
    lives = _lives(prepared, limits)
    items = []
    for proxy_id, windows in found.windows.items():
        for window in windows:
            block = max(1, ITEM_ROWS // window.rows)
            for number, place in enumerate(places):
                warm_us = warm_up_from(window, lives[proxy_id], place.load)
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


def _short_warm_ups(prepared: Prepared, found: Survey, place: Place, limits: Sequence[Limits]) -> int:
    """Count windows whose warm-up ends at the window before, although older requests could still be there."""
    # The window before the second is the beginning of the trace: nothing older is there.
    return sum(
        window.start_us - life_us * place.load < window.floor_us
        for name, life_us in _lives(prepared, limits).items()
        for window in found.windows[name][2:]
    )


def _done(item: WorkItem, counted: Sequence[Aggregates]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "place": np.full(len(counted), item.place, np.int32),
            "scenario": np.arange(item.first, item.last, dtype=np.int32),
            "outcomes": [packed(each.outcomes) for each in counted],
            "waits": [packed(each.waits) for each in counted],
            "others": [packed(np.array(_others(each), np.int64)) for each in counted],
        }
    )


def _others(counted: Aggregates) -> tuple[int, int, int, int]:
    return counted.peak_heap_bytes, counted.peak_direct_bytes, counted.questions, counted.last_end_us


def _counts(row: Row) -> Aggregates:
    waits = unpacked(row.waits).reshape(len(WAITS), BUCKETS)
    return Aggregates(unpacked(row.outcomes), waits, *(int(each) for each in unpacked(row.others)))
