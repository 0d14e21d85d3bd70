"""The most memory that was held at one time: by hand, and held against a sweep over events as they are."""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from pipeline.replay.traces import prepare
from pipeline.transforms.memory import Peak, peaks
from tests.support.pipeline.replay_events import SLOW, frame

MIB = 1 << 20
SECOND = 1_000_000
# Its direct memory goes back while it leaves: it makes half of the byte-seconds.
LEAVING = SLOW | {"direct_byte_us": 300 * SECOND}
WATCH = {"kind": "watch_update", "total_us": 2, "direct_held_us": 2, "direct_bytes": 50, "direct_byte_us": 100}


def test_peaks_are_of_what_one_proxy_held_at_one_time(spark: SparkSession) -> None:
    events: list[dict[str, Any]] = [
        LEAVING,
        LEAVING | {"at_us": SECOND // 4},
        # Half of the memory of the first is back.
        LEAVING | {"at_us": SECOND // 2},
        LEAVING | {"proxy_id": "other"},
        LEAVING | {"carries_cost": False},
    ]
    assert peaks(frame(spark, *events, WATCH, WATCH | {"at_us": 1}, WATCH | {"at_us": 2})) == {
        ("lists", "heap"): Peak(3 * 1800, 1800),
        ("lists", "direct"): Peak(1200, 600),
        ("watch", "direct"): Peak(100, 50),
    }


def lists(seed: int, count: int) -> Iterable[dict[str, Any]]:
    """Make lists at random that come at once, and wait, read and write for up to a second each."""
    chance = random.Random(seed)
    for number in range(count):
        estimate, actual = chance.randrange(1, MIB), chance.randrange(MIB, 2 * MIB)
        stages = ("heap_wait_us", "broker_wait_us", "upstream_us", "heap_update_wait_us", "read_us", "direct_wait_us")
        lasted = {stage: chance.randrange(1, SECOND) for stage in (*stages, "write_us")}
        before = lasted["broker_wait_us"] + lasted["upstream_us"] + lasted["heap_update_wait_us"]
        after = lasted["read_us"] + lasted["direct_wait_us"]
        # What is on disk, or sent, takes no memory any more.
        booked_us = chance.randrange(1, lasted["write_us"] + 1)
        yield lasted | {
            "proxy_id": f"p{number % 2}",
            "at_us": chance.randrange(SECOND),
            "total_us": sum(lasted.values()),
            "heap_estimate_bytes": estimate,
            "heap_actual_bytes": actual,
            "heap_held_us": before + after,
            "heap_byte_us": estimate * before + actual * after,
            "direct_bytes": actual // 2,
            "direct_held_us": booked_us,
            "direct_byte_us": actual // 2 * booked_us,
        }


def swept(events: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Give the most that any proxy held, from one change to the next."""
    changes: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for each in events:
        granted = each["at_us"] + each["heap_wait_us"]
        grown = granted + each["broker_wait_us"] + each["upstream_us"] + each["heap_update_wait_us"]
        sent = grown + each["read_us"] + each["direct_wait_us"]
        heap, direct = changes[each["proxy_id"], "heap"], changes[each["proxy_id"], "direct"]
        growth = each["heap_actual_bytes"] - each["heap_estimate_bytes"]
        heap += [(granted, each["heap_estimate_bytes"]), (grown, growth), (sent, -each["heap_actual_bytes"])]
        direct += [(sent, each["direct_bytes"]), (sent + each["direct_held_us"], -each["direct_bytes"])]
    most = {"heap": 0, "direct": 0}
    for (_, kind), steps in changes.items():
        held = 0
        for _, change in sorted(steps):
            held += change
            most[kind] = max(most[kind], held)
    return most


def test_peaks_of_a_storm_are_those_of_a_sweep_over_its_events(spark: SparkSession) -> None:
    storm = list(lists(1, 300))
    found = {kind: peak.held_bytes for (_, kind), peak in peaks(frame(spark, *storm)).items()}
    assert found == swept(storm)


def test_no_more_was_in_use_than_the_limit(spark: SparkSession, tmp_path: Any) -> None:
    """Two that met in a microsecond, by clocks that are not that exact."""
    limits = {"heap_limit_bytes": 1900, "direct_limit_bytes": 600}
    prepared = prepare(spark, frame(spark, LEAVING | limits, LEAVING | limits | {"at_us": 1}), str(tmp_path / "input"))
    assert (prepared.seen.peak_heap_bytes, prepared.seen.peak_direct_bytes) == (1900, 600)
