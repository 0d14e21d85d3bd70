from pyspark.sql import SparkSession

from pipeline.core.schema import require_table
from pipeline.core.tables.storms import ARRIVALS, STORM_MEMBERS, STORMS
from pipeline.transforms.storms import (
    BurstRule,
    arrivals,
    bursts,
    fleet_seconds,
    hot_seconds,
    storm_members,
    storms,
)
from tests.support.pipeline.usage_events import NOON_US, SECOND_US, event, frame

RULE = BurstRule(times=3.0, floor=4, gap_seconds=1)


def test_arrivals_are_counted_by_second_and_proxy(spark: SparkSession) -> None:
    events = frame(spark, [
        event(0, heap_used_bytes=7, heap_queue_len=1, heap_limit_bytes=100),
        event(SECOND_US - 1, heap_used_bytes=3, heap_queue_len=4, outcome="timeout", outcome_stage="heap"),
        event(SECOND_US),
        event(1, proxy_id="p2", kind="watch_init", outcome="timeout"),
    ])  # fmt: skip
    found = arrivals(events)
    require_table(found, ARRIVALS)
    rows = {(row["second"].second, row["proxy_id"]): row for row in found.collect()}
    assert {key: (row["requests"], row["watch_frames"], row["refused"]) for key, row in rows.items()} == {
        (0, "p1"): (2, 0, 1),
        (1, "p1"): (1, 0, 0),
        (0, "p2"): (0, 1, 0),
    }
    first = rows[0, "p1"]
    assert (first["max_heap_used_bytes"], first["max_heap_queue_len"], first["heap_limit_bytes"]) == (7, 4, 100)
    fleet = fleet_seconds(found).orderBy("second").collect()
    assert [(row["second"] - NOON_US // SECOND_US, row["requests"]) for row in fleet] == [(0, 2), (1, 1)]


def test_storm_is_told_from_the_events_of_its_seconds(spark: SparkSession) -> None:
    calm = [event(n * SECOND_US) for n in range(9)]
    at = 20 * SECOND_US
    storm = [
        event(at + 500, client_id="c1", total_us=4_000_000, heap_wait_us=3_000_000, heap_queue_len=2),
        event(at + 600, client_id="c2", principal="bob", coalesced=True, carries_cost=False, heap_used_bytes=50),
        event(at + 700, client_id="c2", principal="bob", proxy_id="p2", outcome="timeout", outcome_stage="heap"),
        event(at + 800, client_id="c3", principal="bob", namespace="u/b", outcome="cancelled", outcome_stage="heap"),
        event(at + SECOND_US, client_id="c1", total_us=500_000),
        event(at + SECOND_US, kind="watch_update", client_id="c9", heap_queue_len=99),
    ]
    more = [event(at + SECOND_US + n, client_id="c1") for n in range(1, 4)]
    events = frame(spark, [*calm, *storm, *more])
    fleet = fleet_seconds(arrivals(events)).toPandas()
    seen, requests = fleet[["second", "requests"]].to_numpy().T
    found = bursts(seen, requests, RULE)
    seconds = hot_seconds(spark, {None: found})
    told = storms(events, seconds)
    require_table(told, STORMS)
    (row,) = told.collect()
    expected = {
        "storm": 1,
        "arrival_seconds": 0.999503,
        "served_seconds": 4.0,
        "usual_rate": 0.0,
        "peak_rate": 4,
        "requests": 8,
        "answered": 6,
        "refused": 1,
        "cancelled": 1,
        "questions": 7,
        "proxies": 2,
        # The same port may be a different client of another proxy.
        "clients": 4,
        "principals": 2,
        "namespaces": 2,
        "max_heap_used_bytes": 50,
        "max_heap_queue_len": 2,
        "max_memory_wait_us": 3_000_000,
    }
    assert {name: row[name] for name in expected} == expected
    members = storm_members(events, seconds, 1)
    require_table(members, STORM_MEMBERS)
    got = {row["dimension"]: (row["name"], row["requests"], row["refused"]) for row in members.collect()}
    assert got == {
        "tenant": ("t", 8, 1),
        "namespace": ("t/a", 7, 1),
        "principal": ("alice", 5, 0),
        "client_version": ("v1", 8, 1),
        "proxy_id": ("p1", 7, 0),
        "broker": (None, 8, 1),
    }
